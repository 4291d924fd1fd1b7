"""PyTorch's elastic c10d rendezvous for rendezvous_bench: N agents as threads, their first round and the next ones."""
import sys
import threading
import time

from torch.distributed import TCPStore
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import DynamicRendezvousHandler


def meet(handlers):
    """All of them at once, until the last one has its rank; milliseconds."""
    threads = [threading.Thread(target=handler.next_rendezvous) for handler in handlers]
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return (time.perf_counter() - begin) * 1000


def measure(count, rounds):
    server = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    handlers = []
    for i in range(count):
        client = TCPStore("127.0.0.1", server.port, is_master=False)
        backend = C10dRendezvousBackend(client, "bench")
        handlers.append(
            DynamicRendezvousHandler.from_backend("bench", client, backend, count, count, local_addr="127.0.0.1")
        )
    start = meet(handlers)
    again = sorted(meet(handlers) for _ in range(rounds))
    print(f"PyTorch's c10d rendezvous, {count} agents as threads: start {start:.1f} ms, restart {again[len(again) // 2]:.1f} ms", flush=True)


if __name__ == "__main__":
    for count in sys.argv[1:]:
        measure(int(count), 3)
