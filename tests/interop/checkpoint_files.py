"""Checkpoints that dtrun has written, read by the real safetensors and torch.distributed.checkpoint; and the other way.

    checkpoint_files.py write FOLDER    tensors.safetensors, and torch/ by HuggingFaceStorageWriter
    checkpoint_files.py merged FOLDER   merged.safetensors has the same tensors
    checkpoint_files.py split FOLDER    split/ has them, by its index and by HuggingFaceStorageReader
    checkpoint_files.py shards FOLDER   HuggingFaceStorageReader finds them in shards/
    checkpoint_files.py trained FOLDER  and in trained/, which ranks have saved, what trained.safetensors has

Several actions have commas between them: PyTorch takes seconds to start.
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
    for dtype in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8):
        made[f"count.{dtype}".replace("torch.", "")] = torch.randint(0, 120, (11, 4), generator=generator).to(dtype)
    made["mask"] = torch.rand(9, generator=generator) > 0.5
    return made


def compare(found, wanted=None):
    wanted = tensors() if wanted is None else wanted
    assert set(found) == set(wanted), (sorted(found), sorted(wanted))
    for name, value in wanted.items():
        assert found[name].dtype == value.dtype and found[name].shape == value.shape, name
        assert torch.equal(found[name].contiguous().view(-1).view(torch.uint8) if value.dim() else found[name],
                           value.view(-1).view(torch.uint8) if value.dim() else value), name


def read_by_torch(folder, wanted):
    """By torch.distributed.checkpoint, whose reader takes no empty tensors."""
    wanted = {name: value for name, value in wanted.items() if value.numel() > 0}
    found = {name: torch.zeros_like(value) for name, value in wanted.items()}
    dcp.load(found, storage_reader=HuggingFaceStorageReader(path=folder))
    compare(found, wanted)


def run(action, folder):
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
        read_by_torch(f"{folder}/split", tensors())
    elif action == "shards":
        read_by_torch(f"{folder}/shards", tensors())
    elif action == "trained":
        whole = load_file(f"{folder}/trained.safetensors")
        assert len(whole) > 10, sorted(whole)
        read_by_torch(f"{folder}/trained", whole)


def main(actions, folder):
    for action in actions.split(","):
        run(action, folder)
    print("same", actions)


main(*sys.argv[1:])
