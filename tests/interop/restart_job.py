# A job that fails once: rank 0 gives up in its first attempt, after a collective.
import os
import sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
budget = int(os.environ["TORCHELASTIC_MAX_RESTARTS"])
values = torch.full((3,), rank + 1.0)
dist.all_reduce(values)
if rank == 0 and attempt == 0:
    sys.exit(1)
dist.barrier()
print(f"rank {rank} of {size}, restart {attempt} of {budget}: {values.tolist()}", flush=True)
dist.destroy_process_group()
