"""checkpoint_peers.py FOLDER MEBIBYTES: the peers of checkpoint_bench: PyTorch's torch.distributed.checkpoint, which syncs what
it writes, and the safetensors writer with an fsync. Prints lines NAME SECONDS."""
import os
import shutil
import sys
import time
import warnings

import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file, save_file

warnings.filterwarnings("ignore")
folder, mebibytes = sys.argv[1], int(sys.argv[2])
state = {f"layer.{i}": torch.randn(min(32, mebibytes - 32 * i), 1 << 18) for i in range((mebibytes + 31) // 32)}


def measured(name, work):
    start = time.monotonic()
    work()
    print(name, time.monotonic() - start, flush=True)


def save_synced():
    save_file(state, f"{folder}/peer.safetensors")
    fd = os.open(f"{folder}/peer.safetensors", os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def load_safetensors():
    loaded = load_file(f"{folder}/peer.safetensors")
    for name, value in state.items():
        value.copy_(loaded[name])


def evict(path):
    """Out of the page cache."""
    for file in [os.path.join(path, name) for name in os.listdir(path)] if os.path.isdir(path) else [path]:
        fd = os.open(file, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


measured("safetensors save", save_synced)
evict(f"{folder}/peer.safetensors")
measured("safetensors load", load_safetensors)
measured("safetensors load, cached", load_safetensors)
os.remove(f"{folder}/peer.safetensors")
measured("torch dcp save", lambda: dcp.save(state, checkpoint_id=f"{folder}/peer"))
evict(f"{folder}/peer")
measured("torch dcp load", lambda: dcp.load(state, checkpoint_id=f"{folder}/peer"))
measured("torch dcp load, cached", lambda: dcp.load(state, checkpoint_id=f"{folder}/peer"))
shutil.rmtree(f"{folder}/peer")
