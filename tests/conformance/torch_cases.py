"""PyTorch's own store client and process groups against dtrun's server: torch_cases.py STORE_SERVERS [CASE...].

Any PyTorch from 1.13 on. STORE_SERVERS is the program that serves; each case gets stores of its own from it. Prints one
line per case and exits with 0 when all held. What is asserted is what PyTorch documents and tests of its own server.

A set has no answer: what another connection asks at once may be served before it. Where a case looks through another
connection, it waits for the key, or has an answer of the first connection before.
"""
import datetime
import os
import signal
import subprocess
import sys
import threading
import time
import traceback

import torch
import torch.distributed as dist

MODERN = hasattr(dist, "DistNetworkError")  # 2.2 and later; before, all is a RuntimeError
NETWORK_ERROR = dist.DistNetworkError if MODERN else RuntimeError
STORE_ERROR = dist.DistStoreError if MODERN else RuntimeError
WORLD = 3


class Stores:
    """The serving program."""

    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        return self.process.stdout.readline().strip()

    def open(self):
        return int(self.ask("open"))

    def close(self, port):
        assert self.ask(f"close {port}") == "closed"

    def end(self):
        self.process.stdin.close()
        assert self.process.wait(30) == 0


CASES = []


def case(modern_only=False):
    def register(function):
        if MODERN or not modern_only:
            CASES.append(function)
        return function

    return register


def seconds(count):
    return datetime.timedelta(seconds=count)


def connect(port, world_size=None, timeout=30, **options):
    return dist.TCPStore("127.0.0.1", port, world_size, False, seconds(timeout), **options)


def fails(kind, text, action):
    try:
        action()
    except kind as error:
        assert text in str(error), error
        return
    raise AssertionError(f"no {kind.__name__}")


def in_threads(count, work):
    """work(number) in each; the first exception is raised here."""
    errors = []

    def run(number):
        try:
            work(number)
        except BaseException as error:  # to be raised by the one who waits
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def in_processes(count, work):
    """work(rank) in forked processes: one import serves them all."""
    children = []
    for rank in range(count):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                work(rank)
                code = 0
            except BaseException:
                traceback.print_exc()
            sys.stdout.flush()
            os._exit(code)
        children.append(child)
    ends = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert ends == [0] * count, ends


# Process groups. First, because they fork, which a process with threads should not.


def environment_of(port, rank, world_size, agent_store):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(world_size),
                      TORCHELASTIC_RESTART_COUNT="0", OMP_NUM_THREADS="1")
    os.environ.pop("TORCHELASTIC_USE_AGENT_STORE", None)
    if agent_store:
        os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "True"


def use_group(rank, world_size):
    x = torch.full((3,), float(rank + 1))
    dist.all_reduce(x)
    assert x.tolist() == [world_size * (world_size + 1) / 2] * 3, x
    pair = dist.new_group([0, world_size - 1])
    if rank in (0, world_size - 1):
        y = torch.tensor([float(rank)])
        dist.all_reduce(y, group=pair)
        assert y.item() == world_size - 1, y
        dist.barrier(group=pair)
    gathered = [None] * world_size
    dist.all_gather_object(gathered, f"of {rank}")
    assert gathered == [f"of {i}" for i in range(world_size)], gathered
    dist.barrier()
    dist.monitored_barrier(timeout=seconds(30))
    dist.destroy_process_group()


@case()
def a_group_by_env_through_the_agents_store(stores):
    port = stores.open()

    def work(rank):
        environment_of(port, rank, WORLD, agent_store=True)
        dist.init_process_group("gloo", timeout=seconds(60))
        use_group(rank, WORLD)

    in_processes(WORLD, work)


@case()
def a_group_by_url_through_the_agents_store(stores):
    port = stores.open()

    def work(rank):
        environment_of(port, rank, WORLD, agent_store=True)
        del os.environ["RANK"], os.environ["WORLD_SIZE"]
        dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=WORLD,
                                timeout=seconds(60))
        use_group(rank, WORLD)

    in_processes(WORLD, work)


@case(modern_only=True)
def a_group_by_url_with_and_without_libuv(stores):
    for use_libuv in (0, 1):
        port = stores.open()

        def work(rank):
            environment_of(port, rank, 2, agent_store=True)
            dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}?use_libuv={use_libuv}", rank=rank,
                                    world_size=2, timeout=seconds(60))
            use_group(rank, 2)

        in_processes(2, work)


@case()
def a_group_over_a_store_given(stores):
    port = stores.open()

    def work(rank):
        environment_of(port, rank, WORLD, agent_store=False)
        store = dist.PrefixStore("given", connect(port, WORLD))
        dist.init_process_group("gloo", store=store, rank=rank, world_size=WORLD, timeout=seconds(60))
        use_group(rank, WORLD)

    in_processes(WORLD, work)


@case()
def a_group_again_on_the_same_store(stores):
    port = stores.open()

    def work(rank):
        for attempt in range(3):
            environment_of(port, rank, 2, agent_store=True)
            os.environ["TORCHELASTIC_RESTART_COUNT"] = str(attempt)
            store = dist.PrefixStore(f"again {attempt}", connect(port))
            dist.init_process_group("gloo", store=store, rank=rank, world_size=2, timeout=seconds(60))
            use_group(rank, 2)

    in_processes(2, work)


@case()
def a_group_and_rpc_at_the_same_endpoint(stores):
    port = stores.open()

    def work(rank):
        from torch.distributed import rpc
        environment_of(port, rank, 1, agent_store=True)
        dist.init_process_group("gloo", timeout=seconds(60))
        rpc.init_rpc("only", rank=0, world_size=1,
                     rpc_backend_options=rpc.TensorPipeRpcBackendOptions(init_method=f"tcp://127.0.0.1:{port}",
                                                                         _transports=["uv"]))
        assert rpc.rpc_sync("only", max, args=(2, 3)) == 3
        rpc.shutdown()
        dist.destroy_process_group()

    in_processes(1, work)


@case()
def a_master_beside_the_agents_store_becomes_a_client(stores):
    port = stores.open()

    def work(rank):
        environment_of(port, rank, 1, agent_store=True)
        os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "True"
        store, _, _ = next(dist.rendezvous("env://", timeout=seconds(30)))
        store.set("k", "v")
        assert store.get("k") == b"v"
        assert connect(port).num_keys() == 2  # and init/
        if MODERN:
            os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "true"  # what the bind asks of C++
            master = dist.TCPStore("127.0.0.1", port, None, True, seconds(30), wait_for_workers=False)
            assert master.get("k") == b"v"

    in_processes(1, work)


@case()
def a_server_of_pytorch_on_our_port_fails(stores):
    port = stores.open()
    os.environ.pop("TORCHELASTIC_USE_AGENT_STORE", None)
    fails(NETWORK_ERROR, "", lambda: dist.TCPStore("127.0.0.1", port, 1, True, seconds(2)))
    store = connect(port)
    store.set("still", "served")
    assert store.get("still") == b"served"


# One client after another.


def each_kind_of_store(port):
    yield connect(port)
    yield dist.PrefixStore("prefix", connect(port))
    yield dist.PrefixStore("inner", dist.PrefixStore("outer", connect(port)))


@case()
def set_get_check(stores):
    port = stores.open()
    for store in each_kind_of_store(port):
        store.set("k", "v")
        assert store.get("k") == b"v"
        store.set("k", "w")
        assert store.get("k") == b"w"
        store.set("empty", "")
        assert store.get("empty") == b""
        text = "\u00e4\u20ac" * 100
        store.set(text, text)
        assert store.get(text).decode() == text
        big = "x" * (8 << 20)
        store.set("big", big)
        assert store.get("big").decode() == big
        if MODERN:
            store.set("bytes", bytes(range(256)))
            assert store.get("bytes") == bytes(range(256))
            assert store.check(["k", "empty"]) and not store.check(["k", "absent"])
        assert store.delete_key("k") and not store.delete_key("k")


@case()
def counters(stores):
    for store in each_kind_of_store(stores.open()):
        assert store.add("n", 5) == 5
        assert store.add("n", -7) == -2
        assert store.get("n") == b"-2"
        store.set("n", " +41abc")
        assert store.add("n", 1) == 42


@case()
def compare_set(stores):
    for store in each_kind_of_store(stores.open()):
        assert store.compare_set("cas", "wrong", "new") == b"wrong"
        assert store.compare_set("cas", "", "first") == b"first"
        assert store.compare_set("cas", "wrong", "new") == b"first"
        assert store.compare_set("cas", "first", "second") == b"second"
        assert store.get("cas") == b"second"


@case()
def numkeys_delkeys(stores):
    store = connect(stores.open(), 1)  # counts up init/
    for i in range(5):
        store.set(f"k{i}", str(i))
    assert store.num_keys() == 6
    assert store.delete_key("k0") and store.num_keys() == 5
    store.add("n", 1)
    assert store.num_keys() == 6
    assert not store.delete_key("absent") and store.num_keys() == 6
    for i in range(1, 5):
        assert store.delete_key(f"k{i}")
    assert store.num_keys() == 2


@case(modern_only=True)
def append_multi_set_multi_get(stores):
    for store in each_kind_of_store(stores.open()):
        assert store.has_extended_api()
        store.append("log", "ab")
        store.append("log", "cd")
        assert store.get("log") == b"abcd"
        names = [f"many{i}" for i in range(1000)]
        store.multi_set(names, [str(i) for i in range(1000)])
        assert store.multi_get(names) == [str(i).encode() for i in range(1000)]
        assert store.multi_get([]) == []


@case(modern_only=True)
def a_multi_get_waits_for_the_last_key(stores):
    port = stores.open()

    def work(number):
        store = connect(port)
        if number == 0:
            assert store.multi_get(["a", "b"]) == [b"1", b"2"]
        else:
            store.multi_set(["b"], ["2"])
            store.append("a", "1")

    in_threads(2, work)


@case(modern_only=True)
def list_keys(stores):
    store = connect(stores.open(), 1)
    assert store.list_keys() == [] and store.num_keys() == 1  # init/ is counted, not listed
    store.set("a", "1")
    store.add("b", 1)
    store.append("c/d", "")
    dist.PrefixStore("p", store).set("e", "")
    store.queue_push("queue", "1")
    assert sorted(store.list_keys()) == ["a", "b", "c/d", "p/e"], store.list_keys()
    store.delete_key("b")
    assert sorted(store.list_keys()) == ["a", "c/d", "p/e"]


@case(modern_only=True)
def clone(stores):
    store = connect(stores.open(), 1)
    copy = store.clone()
    copy.set("k", "v")
    assert store.get("k") == b"v" and store.num_keys() == 2 and copy.num_keys() == 2
    waits = threading.Thread(target=lambda: copy.wait(["late"]))
    waits.start()
    store.set("late", "")  # the original is not held up by the clone's wait
    waits.join()


@case(modern_only=True)
def prefixes(stores):
    plain = connect(stores.open())
    outer = dist.PrefixStore("outer", plain)
    inner = dist.PrefixStore("inner", outer)
    inner.set("k", "v")
    assert plain.get("outer/inner/k") == b"v" and outer.get("inner/k") == b"v"
    assert inner.underlying_store.get("inner/k") == b"v"
    assert inner._underlying_non_prefix_store.get("outer/inner/k") == b"v"
    assert inner.num_keys() == 1


# Waiting.


@case()
def simple_wait(stores):
    port = stores.open()
    ready = threading.Event()

    def work(number):
        store = connect(port)
        if number == 0:
            ready.wait()
            store.set("late1", "1")
            store.set("late2", "2")
        else:
            ready.set()
            store.wait(["late1", "late2"])
            assert store.get("late2") == b"2"
            store.wait(["late1", "late2"], seconds(1))

    in_threads(2, work)


@case()
def a_timeout_does_not_break_the_client(stores):
    port = stores.open()
    store, other = connect(port), connect(port)
    text = "wait timeout after 100ms, keys: /absent1, /absent2" if MODERN else "Timeout"
    for attempt in range(3):
        fails(STORE_ERROR, text, lambda: store.wait(["absent1", "absent2"], datetime.timedelta(milliseconds=100)))
        store.set("in step", str(attempt))
        assert store.get("in step") == str(attempt).encode()
    other.set("absent1", "")
    other.set("absent2", "")
    assert store.add("n", 1) == 1  # the releases of those waits are not taken for an answer
    store.set_timeout(datetime.timedelta(milliseconds=50))
    assert store.timeout == datetime.timedelta(milliseconds=50)
    fails(STORE_ERROR, "wait timeout after 50ms, keys: /absent3" if MODERN else "Timeout",
          lambda: store.get("absent3"))
    store.set_timeout(seconds(30))
    assert store.get("in step") == b"2"


@case()
def waits_of_many_threads(stores):
    port = stores.open()

    def work(number):
        store = connect(port)
        if number < 16:
            store.wait(["go", f"of {number}"])
        else:
            for i in range(16):
                store.set(f"of {i}", "")
            store.set("go", "")

    in_threads(17, work)


@case()
def each_of_many_waits_for_its_own_key(stores):
    port, count = stores.open(), 64
    clients = [connect(port) for _ in range(count)]

    def work(number):
        if number < count:
            assert clients[number].get(f"of {number}") == str(number).encode()
        else:
            for i in range(count):
                connected.set(f"of {i}", str(i))

    connected = connect(port)
    in_threads(count + 1, work)


@case()
def an_interrupt_does_not_break_a_wait(stores):
    port = stores.open()
    seen = []
    before = signal.signal(signal.SIGUSR1, lambda *_: seen.append(1))
    main, other = threading.main_thread().ident, connect(port)

    def interrupt():
        other.wait(["begun"])
        for _ in range(3):
            signal.pthread_kill(main, signal.SIGUSR1)
            time.sleep(0.02)
        other.set("late", "v")

    interrupter = threading.Thread(target=interrupt)
    store = connect(port)
    interrupter.start()
    store.set("begun", "")
    try:
        assert store.get("late") == b"v"
    except RuntimeError as error:  # 1.13 gives up on EINTR, with its own server too
        assert not MODERN, error
    interrupter.join()
    signal.signal(signal.SIGUSR1, before)
    assert seen


@case()
def the_end_of_the_server_ends_a_wait(stores):
    port = stores.open()
    store, probe = connect(port), connect(port)

    def work(number):
        if number == 0:
            fails(NETWORK_ERROR, "", lambda: store.get("never"))
        else:
            probe.add("n", 1)
            stores.close(port)

    in_threads(2, work)
    fails(NETWORK_ERROR, "", lambda: [store.get("k") for _ in range(2)])


# Many workers.


def each_sets_and_gets_all(port, world_size, announced):
    def work(number):
        store = connect(port, world_size if announced else None)
        store.set(f"of {number}", str(number))
        for i in range(world_size):
            assert store.get(f"of {i}") == str(i).encode()

    in_threads(world_size, work)


@case()
def many_workers_with_a_fixed_world_size(stores):
    each_sets_and_gets_all(stores.open(), 8, announced=True)


@case()
def many_workers_without_a_world_size(stores):
    each_sets_and_gets_all(stores.open(), 8, announced=False)


@case()
def sixteen_clients_count_and_read(stores):
    port = stores.open()

    def work(number):
        store = dist.PrefixStore("p", connect(port))
        for i in range(100):
            store.add("count", 1)
            store.set(f"of {number}", str(i))
            assert store.get(f"of {number}") == str(i).encode()

    in_threads(16, work)
    store = connect(port)
    assert store.get("p/count") == b"1600"
    assert store.num_keys() == 17
    assert store.delete_key("p/count") and store.num_keys() == 16


@case()
def two_stores_of_one_process_share_an_endpoint(stores):
    port = stores.open()
    first, second = connect(port, multi_tenant=True), connect(port, multi_tenant=True)
    first.set("k", "v")
    assert second.get("k") == b"v"


@case(modern_only=True)
def clients_for_either_backend(stores):
    port = stores.open()
    for use_libuv in (False, True):
        store = connect(port, 1, use_libuv=use_libuv)
        store.set("k", str(use_libuv))
        assert store.get("k") == str(use_libuv).encode()
    fails(NotImplementedError, "queues", lambda: connect(port, use_libuv=False).queue_push("q", "1"))


# Queues.


@case(modern_only=True)
def queues(stores):
    port = stores.open()

    def work(number):
        store = connect(port)
        for i in range(50):
            if number == 0:
                store.queue_push("q", str(i))
            else:
                assert store.queue_pop("q") == str(i).encode()

    in_threads(2, work)
    assert connect(port).queue_len("q") == 0


@case(modern_only=True)
def queues_without_blocking(stores):
    store = connect(stores.open())
    fails(dist.QueueEmptyError, "", lambda: store.queue_pop("q", block=False))
    store.queue_push("q", "1")
    store.queue_push("q", "2")
    assert store.queue_len("q") == 2
    assert store.queue_pop("q", block=False) == b"1" and store.queue_pop("q") == b"2"
    fails(dist.QueueEmptyError, "", lambda: store.queue_pop("q", False))
    assert store.num_keys() == 0


@case(modern_only=True)
def queues_in_both_directions(stores):
    port = stores.open()

    def work(number):
        store = connect(port)
        for i in range(50):
            if number == 0:
                store.queue_push("there", str(i))
                assert store.queue_pop("back") == str(i).encode()
            else:
                assert store.queue_pop("there") == str(i).encode()
                store.queue_push("back", str(i))

    in_threads(2, work)


@case(modern_only=True)
def queues_time_out(stores):
    port = stores.open()
    store = connect(port)
    store.set_timeout(datetime.timedelta(milliseconds=50))
    for _ in range(2):
        fails(dist.DistStoreError, "wait timeout after 50ms, keys: /q", lambda: store.queue_pop("q"))
    store.set_timeout(seconds(30))
    other = connect(port)
    other.queue_push("q", "late")
    assert store.queue_pop("q") == b"late" and store.queue_len("q") == 0


# Refusals.


@case()
def what_is_no_number_ends_the_connection_only(stores):
    port = stores.open()
    writer = connect(port)
    writer.set("text", "abc")
    assert writer.get("text") == b"abc"
    fails(NETWORK_ERROR, "", lambda: connect(port).add("text", 1))
    store = connect(port)
    assert store.get("text") == b"abc"

    def set_too_long():
        store.set("too long", "x" * ((8 << 20) + 1))
        store.get("text")

    fails(NETWORK_ERROR, "", set_too_long)
    assert connect(port).num_keys() == 1


def main():
    stores = Stores(sys.argv[1])
    chosen = [each for each in CASES if len(sys.argv) == 2 or each.__name__ in sys.argv[2:]]
    failed = 0
    for each in chosen:
        start = time.monotonic()
        try:
            each(stores)
            print(f"ok      {each.__name__} {time.monotonic() - start:.2f} s", flush=True)
        except Exception:
            failed += 1
            print(f"FAILED  {each.__name__}\n{traceback.format_exc()}", flush=True)
    stores.end()
    print(f"{len(chosen) - failed} of {len(chosen)} cases hold with PyTorch {torch.__version__}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
