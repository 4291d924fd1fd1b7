"""An ordinary PyTorch program that meets by tcp://, makes groups, and uses the store directly."""
import os
from datetime import timedelta

import torch
import torch.distributed as dist

host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo", init_method=f"tcp://{host}:{port}", rank=rank, world_size=world_size)
groups = [dist.new_group([0, 1]), dist.new_group([2])]
x = torch.tensor([float(rank + 1)])
dist.all_reduce(x, group=groups[rank // 2])

store = dist.TCPStore(host, port, world_size, is_master=False, timeout=timedelta(seconds=30))
store.queue_push("queue", str(rank).encode())
dist.barrier()
drawn = dist.PrefixStore("drawn", store)
drawn.set(store.queue_pop("queue").decode(), b"1")
drawn.wait([str(each) for each in range(world_size)])
dist.barrier()
print(f"rank {rank} of {world_size}: {x.tolist()}, {store.queue_len('queue')} left")
dist.destroy_process_group()
