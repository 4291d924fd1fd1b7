"""PyTorch's own TCPStore client against a store that is not PyTorch's: store_client.py PORT.

Asserts what PyTorch documents and tests of its own server; exits with 0 when all holds.
"""
import datetime
import sys
import threading
import time

import torch.distributed as dist

port = int(sys.argv[1])


def seconds(count):
    return datetime.timedelta(seconds=count)


def connect(use_libuv, world_size=None):
    return dist.TCPStore("127.0.0.1", port, world_size, False, seconds(30), use_libuv=use_libuv)


def fails(kind, text, action):
    try:
        action()
    except kind as error:
        assert text in str(error), error
        return
    raise AssertionError(f"no {kind.__name__}")


def keys_and_values(store):
    store.set("k", "v")
    assert store.get("k") == b"v"
    store.set("bytes", bytes(range(256)))
    assert store.get("bytes") == bytes(range(256))
    store.set("empty", "")
    assert store.get("empty") == b""
    big = b"x" * (8 << 20)
    store.set("big", big)
    assert store.get("big") == big
    assert store.check(["k", "empty"]) and not store.check(["k", "absent"])
    before = store.num_keys()
    assert store.delete_key("k") and not store.delete_key("k")
    assert store.num_keys() == before - 1


def counters(store):
    assert store.add("n", 5) == 5
    assert store.add("n", -7) == -2
    assert store.get("n") == b"-2"
    store.set("n", " +41abc")
    assert store.add("n", 1) == 42


def compare_set(store):
    assert store.compare_set("cas", "wrong", "new") == b"wrong"
    assert not store.check(["cas"])
    assert store.compare_set("cas", "", "first") == b"first"
    assert store.compare_set("cas", "wrong", "new") == b"first"
    assert store.compare_set("cas", "first", "second") == b"second"


def many_at_once(store):
    store.append("log", "ab")
    store.append("log", "cd")
    assert store.get("log") == b"abcd"
    names = [f"many{i}" for i in range(1000)]
    store.multi_set(names, [str(i) for i in range(1000)])
    assert store.multi_get(names) == [str(i).encode() for i in range(1000)]
    listed = store.list_keys()
    assert set(names) <= set(listed), listed
    assert len(listed) == len(set(listed))


def waits(store):
    fails(dist.DistStoreError, "wait timeout after 100ms, keys: /absent1, /absent2",
          lambda: store.wait(["absent1", "absent2"], datetime.timedelta(milliseconds=100)))
    store.set("in step", "1")
    assert store.get("in step") == b"1"
    store.set_timeout(datetime.timedelta(milliseconds=50))
    fails(dist.DistStoreError, "wait timeout after 50ms, keys: /absent3", lambda: store.get("absent3"))
    store.set_timeout(seconds(30))
    other = store.clone()

    def set_late():
        other.wait(["ready"])
        other.set("late1", "1")
        other.set("late2", "2")

    setter = threading.Thread(target=set_late)
    setter.start()
    store.set("ready", "")
    store.wait(["late1", "ready", "late2"])
    setter.join()
    assert store.multi_get(["late2", "late1"]) == [b"2", b"1"]


def queues(store, use_libuv):
    if not use_libuv:
        fails(NotImplementedError, "queues", lambda: store.queue_push("q", "1"))
        return
    store.queue_push("q", "1")
    store.queue_push("q", "2")
    assert store.queue_len("q") == 2
    assert store.queue_pop("q") == b"1" and store.queue_pop("q") == b"2"
    fails(dist.QueueEmptyError, "", lambda: store.queue_pop("q", block=False))
    store.set_timeout(datetime.timedelta(milliseconds=50))
    fails(dist.DistStoreError, "wait timeout after 50ms", lambda: store.queue_pop("q"))
    store.set_timeout(seconds(30))
    pusher = store.clone()
    popped = []
    popper = threading.Thread(target=lambda: popped.append(store.queue_pop("q")))
    popper.start()
    pusher.queue_push("q", "late")
    popper.join()
    assert popped == [b"late"]


def refusals(use_libuv):
    store = connect(use_libuv)
    store.set("text", "abc")
    fails(dist.DistNetworkError, "", lambda: store.add("text", 1))
    store = connect(use_libuv)
    assert store.get("text") == b"abc"

    def set_too_long():
        store.set("too long", b"x" * ((8 << 20) + 1))
        store.get("text")

    fails(dist.DistNetworkError, "", set_too_long)


def many_clients(use_libuv, prefix):
    def work(number):
        store = dist.PrefixStore(prefix, connect(use_libuv))
        store.set(f"of {number}", str(number))
        for _ in range(50):
            store.add("count", 1)
        names = [f"of {i}" for i in range(16)]
        assert store.multi_get(names) == [str(i).encode() for i in range(16)]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert connect(use_libuv).get(f"{prefix}/count") == b"800"


for use_libuv in (True, False):
    prefix = f"libuv {use_libuv}"
    store = connect(use_libuv, world_size=1)
    for each in (dist.PrefixStore(prefix, store), dist.PrefixStore("inner", dist.PrefixStore(prefix, store))):
        keys_and_values(each)
        counters(each)
        compare_set(each)
    plain = connect(use_libuv)
    keys_and_values(plain)
    many_at_once(plain)
    waits(plain)
    queues(plain, use_libuv)
    refusals(use_libuv)
    many_clients(use_libuv, prefix)
    for name in plain.list_keys():
        plain.delete_key(name)
    assert plain.num_keys() == 1, plain.num_keys()  # init/, which the constructor counts up
print("all as PyTorch documents")
