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


measured("safetensors save", save_synced)
measured("safetensors load", lambda: [value.copy_(load[name]) for load in [load_file(f"{folder}/peer.safetensors")]
                                      for name, value in state.items()])
os.remove(f"{folder}/peer.safetensors")
measured("torch dcp save", lambda: dcp.save(state, checkpoint_id=f"{folder}/peer"))
measured("torch dcp load", lambda: dcp.load(state, checkpoint_id=f"{folder}/peer"))
shutil.rmtree(f"{folder}/peer")
