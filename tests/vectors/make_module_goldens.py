"""Writes modules.jsonl.gz: what PyTorch 2.15's modules compute on a CPU, in f64.

    PYTHON_WITH_TORCH tests/vectors/make_module_goldens.py tests/vectors

PYTHON_WITH_TORCH is the interpreter in the folder that tests/lab's torch-up prints. A case is a
module by its "name", its "text" (repr), its "state" and the first "inputs"; "output" is what it
gives for them, and "input_gradient" and "gradients" (by the state's names) those of sum(output *
weights). A tensor is {"dtype", "shape", "value"}. Modules are in eval mode where "eval" says so.
"""

import gzip
import json
import sys

import torch
from torch import nn


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(6, 8)
        self.down = nn.Linear(8, 3, bias=False)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


class Nested(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])
        self.norm = nn.LayerNorm(4)
        self.head = nn.Sequential(nn.Linear(4, 2), nn.Tanh())

    def forward(self, x):
        for layer in self.layers:
            x = x + torch.relu(layer(x))
        return self.head(self.norm(x))


class Attention(nn.Module):
    """Of the input to a part of itself, with masks."""

    def __init__(self):
        super().__init__()
        self.inner = nn.MultiheadAttention(8, 2)
        self.padding = torch.tensor([[False, False, True], [False, True, False]])
        self.pairs = torch.tensor([[False, True, False]] * 3 + [[False, False, False]])

    def forward(self, x):
        some = x[:3]
        masks = dict(need_weights=False, key_padding_mask=self.padding, attn_mask=self.pairs)
        added = dict(need_weights=False, attn_mask=torch.arange(24.0, dtype=torch.float64).view(4, 2, 3).transpose(0, 1).repeat_interleave(2, 0))
        return self.inner(x, some, some * 2, **masks)[0] + self.inner(x, some, some, **added)[0]


class Alone(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.inner = nn.MultiheadAttention(6, 3, **options)

    def forward(self, x):
        return self.inner(x, x, x, need_weights=False)[0]


def floats(*shape):
    return torch.randn(shape, dtype=torch.float64)


CASES = {
    "linear": (lambda: nn.Linear(5, 3), lambda: floats(4, 5)),
    "linear_no_bias": (lambda: nn.Linear(5, 3, bias=False), lambda: floats(2, 4, 5)),
    "mlp": (Mlp, lambda: floats(4, 6)),
    "nested": (Nested, lambda: floats(5, 4)),
    "embedding": (lambda: nn.Embedding(7, 3), lambda: torch.tensor([[1, 0, 6], [3, 3, 1]])),
    "embedding_padding": (lambda: nn.Embedding(7, 3, padding_idx=2), lambda: torch.tensor([2, 0, 6, 2])),
    "layer_norm": (lambda: nn.LayerNorm(6), lambda: floats(4, 6)),
    "layer_norm_two": (lambda: nn.LayerNorm([3, 4], eps=1e-3, bias=False), lambda: floats(2, 3, 4)),
    "layer_norm_plain": (lambda: nn.LayerNorm(6, elementwise_affine=False), lambda: floats(4, 6)),
    "rms_norm": (lambda: nn.RMSNorm(6), lambda: floats(4, 6)),
    "rms_norm_eps": (lambda: nn.RMSNorm([2, 3], eps=1e-2, elementwise_affine=False), lambda: floats(4, 2, 3)),
    "dropout_eval": (lambda: nn.Dropout(0.3), lambda: floats(4, 6)),
    "relu": (lambda: nn.ReLU(), lambda: floats(4, 6)),
    "gelu": (lambda: nn.GELU(), lambda: floats(4, 6)),
    "gelu_tanh": (lambda: nn.GELU(approximate="tanh"), lambda: floats(4, 6)),
    "silu": (lambda: nn.SiLU(), lambda: floats(4, 6)),
    "tanh": (lambda: nn.Tanh(), lambda: floats(4, 6)),
    "sigmoid": (lambda: nn.Sigmoid(), lambda: floats(4, 6)),
    "softmax": (lambda: nn.Softmax(dim=-1), lambda: floats(4, 6)),
    "conv2d": (lambda: nn.Conv2d(3, 4, 3), lambda: floats(2, 3, 6, 5)),
    "conv2d_strided": (
        lambda: nn.Conv2d(4, 6, (3, 2), stride=2, padding=(1, 0), dilation=(1, 2), groups=2, bias=False),
        lambda: floats(2, 4, 7, 8),
    ),
    "flatten": (lambda: nn.Flatten(), lambda: floats(2, 3, 4)),
    "flatten_some": (lambda: nn.Flatten(0, 1), lambda: floats(2, 3, 4)),
    "attention": (Attention, lambda: floats(4, 2, 8)),
    "attention_batch_first": (lambda: Alone(batch_first=True, bias=False), lambda: floats(2, 5, 6)),
    "attention_one_sample": (Alone, lambda: floats(5, 6)),
    "sequential": (lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), lambda: floats(3, 4)),
}


def tensor(value):
    dtype = {torch.float64: "f64", torch.int64: "i64"}[value.dtype]
    return {"dtype": dtype, "shape": list(value.shape), "value": value.detach().flatten().tolist()}


def case(name, make, make_input):
    torch.manual_seed(sum(name.encode()))
    module = make().double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, dtype=torch.float64))
    if name.endswith("_eval"):
        module.eval()
    given = make_input()
    if given.is_floating_point():
        given.requires_grad_()
    output = module(given)
    weights = floats(*output.shape)
    (output * weights).sum().backward()
    return {
        "name": name,
        "text": repr(module).replace("NonDynamicallyQuantizableLinear", "Linear"),
        "eval": not module.training,
        "state": [{"name": key, **tensor(value)} for key, value in module.state_dict().items()],
        "input": tensor(given),
        "weights": tensor(weights),
        "output": tensor(output),
        "input_gradient": tensor(given.grad) if given.is_floating_point() else None,
        "gradients": [tensor(parameter.grad) for parameter in module.parameters()],
    }


def main():
    cases = [case(name, *how) for name, how in CASES.items()]
    text = "".join(json.dumps(one, separators=(",", ":")) + "\n" for one in cases)
    path = f"{sys.argv[1]}/modules.jsonl.gz"
    with open(path, "wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as packed:
        packed.write(text.encode())
    print(f"{path}: {len(cases)} cases, {len(text)} bytes unpacked")


main()
