"""Python's multiprocessing for spawn_bench: a start method per line in, milliseconds out."""
import multiprocessing
import sys
import time


def do_nothing(rank):
    pass


def start_and_join(method):
    context = multiprocessing.get_context(method)
    processes = [context.Process(target=do_nothing, args=(rank,)) for rank in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()


if __name__ == "__main__":
    for line in sys.stdin:
        begin = time.perf_counter()
        start_and_join(line.strip())
        print((time.perf_counter() - begin) * 1000, flush=True)
