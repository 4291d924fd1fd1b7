"""examples/train_gpt.cc in PyTorch: the same first weights, samples and steps; a loss a line.

Under torchrun the ranks share each batch: DistributedDataParallel over gloo.
"""
import argparse
import math
import os

import torch
import torch.distributed as dist
from safetensors.torch import load_file
from torch.nn.functional import cross_entropy, gelu, layer_norm, scaled_dot_product_attention

parser = argparse.ArgumentParser()
parser.add_argument("--data")
parser.add_argument("--weights")
for name in ("--steps", "--batch", "--context", "--width", "--layers", "--heads"):
    parser.add_argument(name, type=int)
options = parser.parse_args()
RATE, CLIP, SEED, KEPT = 3e-3, 1.0, 1, 2**64 - 1
torch.set_num_threads(1)

text = torch.frombuffer(bytearray(open(options.data, "rb").read()), dtype=torch.uint8).long()
RANK, RANKS = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
if options.batch % RANKS:
    parser.error(f"a batch of {options.batch} samples for {RANKS} ranks")
OWN = options.batch // RANKS
if RANKS > 1:
    dist.init_process_group("gloo")


def mt19937_64(seed):
    """C++'s std::mt19937_64."""
    state = [seed & KEPT]
    for i in range(1, 312):
        state.append((6364136223846793005 * (state[-1] ^ (state[-1] >> 62)) + i) & KEPT)
    while True:
        for i in range(312):
            x = (state[i] & 0xFFFFFFFF80000000) | (state[(i + 1) % 312] & 0x7FFFFFFF)
            state[i] = state[(i + 156) % 312] ^ (x >> 1) ^ (0xB5026F5AA96619E9 if x & 1 else 0)
        for x in state:
            x ^= (x >> 29) & 0x5555555555555555
            x ^= (x << 17) & 0x71D67FFFEDA60000
            x ^= (x << 37) & 0xFFF7EEE000000000
            yield x ^ (x >> 43)


def windows(number):
    random = mt19937_64(SEED * 1000003 + number)
    last = len(text) * 9 // 10 - options.context - 1
    starts = [next(random) % last for _ in range(options.batch)]
    rows = torch.stack([text[start:start + options.context + 1] for start in starts])
    rows = rows[RANK * OWN:(RANK + 1) * OWN]
    return rows[:, :-1], rows[:, 1:]


class Gpt(torch.nn.Module):
    def __init__(self, numbers):
        super().__init__()
        # Names of parameters have no dots in PyTorch.
        for name, weight in numbers.items():
            self.register_parameter(name.replace(".", "_"), torch.nn.Parameter(weight))

    def weight(self, name):
        return getattr(self, name.replace(".", "_"), None)

    def norm(self, x, name):
        return layer_norm(x, (options.width,), self.weight(name + ".weight"),
                          self.weight(name + ".bias"))

    def linear(self, x, name):
        bias = self.weight(name + ".bias")
        y = x @ self.weight(name + ".weight").t()
        return y if bias is None else y + bias

    def forward(self, x):
        def split(x):
            return x.unflatten(-1, (options.heads, -1)).transpose(1, 2)

        x = self.weight("0.bytes.weight")[x] + self.weight("0.places.weight")[:x.shape[1]]
        for i in range(1, options.layers + 1):
            h = self.norm(x, f"{i}.attention_norm")
            q, k, v = (split(self.linear(h, f"{i}.attention.{name}"))
                       for name in ("query", "key", "value"))
            mixed = scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.linear(mixed.transpose(1, 2).flatten(2), f"{i}.attention.output")
            x = x + self.linear(gelu(self.linear(self.norm(x, f"{i}.norm"), f"{i}.up")), f"{i}.down")
        return self.linear(self.norm(x, f"{options.layers + 1}.norm"),
                           f"{options.layers + 1}.scores")


model = Gpt(load_file(options.weights))
parameters = list(model.parameters())
scores = torch.nn.parallel.DistributedDataParallel(model) if RANKS > 1 else model
optimizer = torch.optim.AdamW(parameters, lr=RATE, weight_decay=0.1)
warmup, total = max(1, options.steps // 10), options.steps + 1


def ratio(step):
    if step < warmup:
        return (step + 1) / warmup
    return 0.1 + 0.9 * (1 + math.cos(math.pi * (step - warmup) / (total - warmup))) / 2


schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, ratio)
for step in range(1, options.steps + 1):
    x, y = windows(step)
    loss = cross_entropy(scores(x).flatten(0, 1), y.flatten())
    loss.backward()
    torch.nn.utils.clip_grad_norm_(parameters, CLIP)
    optimizer.step()
    optimizer.zero_grad()
    schedule.step()
    mean = loss.detach()
    if RANKS > 1:
        dist.all_reduce(mean)
    if RANK == 0:
        print(f"{step},{mean.item() / RANKS:.6f}", flush=True)
if RANKS > 1:
    dist.destroy_process_group()
