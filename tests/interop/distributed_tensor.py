"""examples/distributed_tensor.cc in PyTorch: the program that it is a translation of, with its numbers."""
import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Shard, distribute_tensor

dist.init_process_group(backend="gloo")
first = dist.get_rank() == 0
device_mesh = DeviceMesh("cpu", torch.arange(dist.get_world_size()))


def values(start):
    return torch.arange(float(start), float(start + 16)).reshape(4, 4)


def show(name, value):
    if first:
        print(f"{name}: {value!r}", flush=True)


sharded_tensor = distribute_tensor(values(0), device_mesh, placements=[Shard(0)])
show("Sharded Tensor", sharded_tensor)
resharded_tensor = sharded_tensor.redistribute(device_mesh, placements=[Shard(1)])
show("Resharded Tensor", resharded_tensor)
tensor2 = distribute_tensor(values(16), device_mesh, placements=[Shard(1)])
result = torch.matmul(sharded_tensor, tensor2)
show("Distributed Matmul Result", result)
show("Distributed Matmul Result, whole", result.full_tensor())
show("to_local()", sharded_tensor.to_local())
show("full_tensor()", sharded_tensor.full_tensor())
total = sharded_tensor.to_local().sum()
dist.all_reduce(total)
show("all_reduce()", total)
dist.destroy_process_group()
# Gloo's threads may still hold a tensor of DTensor's here. Such a thread takes Python's lock while
# the interpreter goes, and the process aborts (pytorch/pytorch#179291).
os._exit(0)
