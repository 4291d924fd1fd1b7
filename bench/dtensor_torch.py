"""PyTorch's side of dtensor_bench, one process beside each rank: "CASE SIDE" per line in, seconds a call out."""
import os
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def waited(tensor):
    local = tensor._local_tensor
    if hasattr(local, "wait"):
        local.wait()


def call_of(case, side):
    if case.startswith("matmul"):
        axes, dtype = case.removeprefix("matmul").split("_")
        shape, cut = ((SIZE,), [Shard(0)]) if axes == "1D" else ((2, SIZE // 2), [Shard(0), Shard(1)])
        mesh = init_device_mesh("cpu", shape)
        numbers = {"f32": torch.float32, "f64": torch.float64}[dtype]
        a, b = (distribute_tensor(torch.randn(side, side, dtype=numbers), mesh, cut) for _ in range(2))
        return lambda: waited((a @ b).redistribute(mesh, cut))
    mesh = init_device_mesh("cpu", (SIZE,))
    source, target = case.split("-")
    if source == "P":
        x = DTensor.from_local(torch.randn(side, side), mesh, [Partial()], run_check=False)
    else:
        x = distribute_tensor(torch.randn(side, side), mesh, [Shard(0)])
    to = {"R": Replicate(), "S0": Shard(0), "S1": Shard(1)}[target]
    return lambda: waited(x.redistribute(mesh, [to]))


def timed(call, calls):
    dist.barrier()
    begin = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - begin) / calls


def main():
    torch.set_num_threads(1)
    store = dist.FileStore(os.environ["DTENSOR_BENCH_MEETING"], SIZE)
    dist.init_process_group("gloo", store=store, rank=RANK, world_size=SIZE)
    calls = {}
    for line in sys.stdin:
        case, side = line.split()
        with torch.no_grad():
            if line not in calls:
                calls.clear()
                call = call_of(case, int(side))
                call()
                took = torch.tensor([timed(call, 3)])
                dist.all_reduce(took, dist.ReduceOp.MAX)
                calls[line] = call, max(1, int(0.02 / took.item()))
            print(timed(*calls[line]), flush=True)


if __name__ == "__main__":
    main()
