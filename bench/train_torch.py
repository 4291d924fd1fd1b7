"""PyTorch's side of train_bench, one process beside each rank: "MODEL WAY" per line in, seconds a training step out."""
import os
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
WIDTH, LAYERS, HEADS, CONTEXT, SAMPLES = 256, 4, 8, 256, 8
ROWS, MLP_WIDTH, MLP_LAYERS = 64, 64, 20
MICROBATCHES = 4


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention_norm, self.norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.query, self.key, self.value, self.output = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        h = self.attention_norm(x)
        q, k, v = (f(h).unflatten(-1, (-1, WIDTH // HEADS)).transpose(1, 2) for f in (self.query, self.key, self.value))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.output(mixed.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Embeddings(nn.Module):
    def __init__(self):
        super().__init__()
        self.bytes, self.places = nn.Embedding(256, WIDTH), nn.Embedding(CONTEXT, WIDTH)

    def forward(self, text):
        return self.bytes(text) + self.places(torch.arange(text.size(1)))


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.scores = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 256, bias=False)

    def forward(self, x):
        return self.scores(self.norm(x))


def loss_of_gpt(model, part):
    text = torch.randint(0, 256, (SAMPLES // part, CONTEXT))
    return lambda: F.cross_entropy(model(text).flatten(0, 1), text.flatten())


def loss_of_mlp(model, part):
    x = torch.randn(ROWS // part, MLP_WIDTH)
    return lambda: model(x).square().mean()


def made(name):
    if name == "gpt":
        return nn.Sequential(Embeddings(), *(Block() for _ in range(LAYERS)), Head())
    return nn.Sequential(*(layer for _ in range(MLP_LAYERS) for layer in (nn.Linear(MLP_WIDTH, MLP_WIDTH), nn.ReLU())))


PLAN = {"query": ColwiseParallel(), "key": ColwiseParallel(), "value": ColwiseParallel(), "output": RowwiseParallel(),
        "up": ColwiseParallel(), "down": RowwiseParallel()}


def step_of_pipeline(model):
    """The stages have the children that Pipeline gives them."""
    cuts = {2: [0, 3, 6], 4: [0, 2, 3, 4, 6]}[SIZE]
    part = model[cuts[RANK]:cuts[RANK + 1]]
    stage = PipelineStage(part, RANK, SIZE, torch.device("cpu"))
    schedule = Schedule1F1B(stage, MICROBATCHES, lambda y, text: F.cross_entropy(y.flatten(0, 1), text.flatten()))
    text = torch.randint(0, 256, (SAMPLES, CONTEXT))
    optimizer = torch.optim.AdamW(part.parameters(), lr=1e-3)

    def step():
        schedule.step(*([text] if RANK == 0 else []), **({"target": text} if RANK == SIZE - 1 else {}))
        optimizer.step()
        optimizer.zero_grad()

    return step


def step_of_optimizer():
    mesh = init_device_mesh("cpu", (SIZE,))
    parameters = [nn.Parameter(distribute_tensor(torch.randn(64), mesh, [Shard(0)])) for _ in range(200)]
    for parameter in parameters:
        parameter.grad = distribute_tensor(torch.randn(64), mesh, [Shard(0)])
    return torch.optim.AdamW(parameters, lr=1e-3).step


def step_of(name, way):
    if name == "200":
        return step_of_optimizer()
    model = made(name)
    if way == "pp":
        return step_of_pipeline(model)
    blocks = list(model.children())[1:-1] if name == "gpt" else list(model.children())[::2]
    if way == "dp":
        model = DistributedDataParallel(model, gradient_as_bucket_view=True)
    elif way == "fsdp":
        mesh = init_device_mesh("cpu", (SIZE,))
        for block in blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
    elif way == "tp":
        mesh = init_device_mesh("cpu", (SIZE,))
        if name == "gpt":
            for block in blocks:
                parallelize_module(block, mesh, PLAN)
        else:
            for i, layer in enumerate(blocks):
                parallelize_module(layer, mesh, RowwiseParallel() if i % 2 else ColwiseParallel())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loss = (loss_of_gpt if name == "gpt" else loss_of_mlp)(model, SIZE if way in ("dp", "fsdp") else 1)

    def step():
        loss().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def timed(step, steps):
    dist.barrier()
    begin = time.perf_counter()
    for _ in range(steps):
        step()
    return (time.perf_counter() - begin) / steps


def main():
    torch.set_num_threads(1)
    store = dist.FileStore(os.environ["TRAIN_BENCH_MEETING"], SIZE)
    dist.init_process_group("gloo", store=store, rank=RANK, world_size=SIZE)
    steps = {}
    for line in sys.stdin:
        if line not in steps:
            steps.clear()
            step = step_of(*line.split())
            timed(step, 3)
            took = torch.tensor([timed(step, 1)])
            dist.all_reduce(took, dist.ReduceOp.MAX)
            steps[line] = step, max(2, int(1 / took.item()))
        print(timed(*steps[line]), flush=True)


if __name__ == "__main__":
    main()
