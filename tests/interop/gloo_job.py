"""An ordinary PyTorch program, as its users write it: nothing in it knows of dtrun."""
import sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
x = torch.full((3,), float(rank + 1))
dist.all_reduce(x)
dist.barrier()
print(f"rank {rank} of {world_size}: {x.tolist()} {sys.argv[1:]}")
dist.destroy_process_group()
