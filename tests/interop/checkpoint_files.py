"""Checkpoints that dtrun has written, read by the real safetensors and torch.distributed.checkpoint; and the other way.

    checkpoint_files.py write FOLDER    tensors.safetensors, and torch/ by HuggingFaceStorageWriter
    checkpoint_files.py merged FOLDER   merged.safetensors has the same tensors
    checkpoint_files.py split FOLDER    split/ has them, by its index
    checkpoint_files.py shards FOLDER   HuggingFaceStorageReader finds them in shards/
"""
import json
import sys

import torch
import torch.distributed.checkpoint as dcp
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch.distributed.checkpoint import HuggingFaceStorageReader, HuggingFaceStorageWriter


def tensors():
    generator = torch.Generator().manual_seed(1)
    made = {"number": torch.tensor(1 / 3, dtype=torch.float64), "empty": torch.empty(0, 4)}
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        made[f"layer.{dtype}".replace("torch.", "")] = torch.randn(7, 5, 3, generator=generator).to(dtype)
    for dtype in (torch.int64, torch.int32, torch.uint8):
        made[f"count.{dtype}".replace("torch.", "")] = torch.randint(0, 200, (11, 4), generator=generator).to(dtype)
    made["mask"] = torch.rand(9, generator=generator) > 0.5
    return made


def compare(found, names=None):
    wanted = {name: value for name, value in tensors().items() if names is None or name in names}
    assert set(found) == set(wanted), (sorted(found), sorted(wanted))
    for name, value in wanted.items():
        assert found[name].dtype == value.dtype and found[name].shape == value.shape, name
        assert torch.equal(found[name].contiguous().view(-1).view(torch.uint8) if value.dim() else found[name],
                           value.view(-1).view(torch.uint8) if value.dim() else value), name


def main(action, folder):
    if action == "write":
        save_file(tensors(), f"{folder}/tensors.safetensors")
        dcp.save({name: value for name, value in tensors().items() if value.numel() > 0},
                 storage_writer=HuggingFaceStorageWriter(path=f"{folder}/torch"))
    elif action == "merged":
        compare(load_file(f"{folder}/merged.safetensors"))
    elif action == "split":
        with open(f"{folder}/split/model.safetensors.index.json") as index:
            weights = json.load(index)["weight_map"]
        assert len(set(weights.values())) > 1, weights
        found = {}
        for name, file in weights.items():
            with safe_open(f"{folder}/split/{file}", framework="pt") as shard:
                found[name] = shard.get_tensor(name)
        compare(found)
    elif action == "shards":
        found = {name: torch.zeros_like(value) for name, value in tensors().items() if value.numel() > 0}
        dcp.load(found, storage_reader=HuggingFaceStorageReader(path=f"{folder}/shards"))
        compare(found, set(found))
    print("same", action)


main(*sys.argv[1:])
