"""examples/train_gpt.cc in PyTorch: the same first weights, samples and steps; a loss a line."""
import argparse
import math

import torch
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
weights = {name: weight.requires_grad_() for name, weight in load_file(options.weights).items()}


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
    return rows[:, :-1], rows[:, 1:]


def norm(x, name):
    return layer_norm(x, (options.width,), weights[name + ".weight"], weights[name + ".bias"])


def linear(x, name):
    bias = weights.get(name + ".bias")
    y = x @ weights[name + ".weight"].t()
    return y if bias is None else y + bias


def split(x):
    return x.unflatten(-1, (options.heads, -1)).transpose(1, 2)


def scores(x):
    x = weights["0.bytes.weight"][x] + weights["0.places.weight"][:x.shape[1]]
    for i in range(1, options.layers + 1):
        h = norm(x, f"{i}.attention_norm")
        q, k, v = (split(linear(h, f"{i}.attention.{name}")) for name in ("query", "key", "value"))
        mixed = scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + linear(mixed.transpose(1, 2).flatten(2), f"{i}.attention.output")
        x = x + linear(gelu(linear(norm(x, f"{i}.norm"), f"{i}.up")), f"{i}.down")
    return linear(norm(x, f"{options.layers + 1}.norm"), f"{options.layers + 1}.scores")


optimizer = torch.optim.AdamW(weights.values(), lr=RATE, weight_decay=0.1)
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
    torch.nn.utils.clip_grad_norm_(weights.values(), CLIP)
    optimizer.step()
    optimizer.zero_grad()
    schedule.step()
    print(f"{step},{loss.item():.6f}", flush=True)
