"""PyTorch's side of tensor_bench: "OP DTYPE ELEMENTS THREADS ROW" per line in, nanoseconds a call out (the least of several)."""
import sys
import time

import torch
import torch.nn.functional as F

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


def adamw_call(elements):
    """A step over 200 parameters that have that many elements together, as PyTorch does it by itself on a CPU, or by foreach: what is faster."""
    parameters = [torch.randn(max(1, elements // 200), requires_grad=True) for _ in range(200)]
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    optimizers = [torch.optim.AdamW(parameters, foreach=foreach) for foreach in (False, True)]
    took = []
    for optimizer in optimizers:
        optimizer.step()
        begin = time.perf_counter()
        optimizer.step()
        took.append(time.perf_counter() - begin)
    return optimizers[took.index(min(took))].step


def attention_call(op, dtype, elements):
    """One sample of 8 heads, numbers of 64. To decode is to ask all keys with the last query alone."""
    query, key, value, gradient = (torch.randn(1, 8, max(1, elements // 512), 64).to(dtype) for _ in range(4))
    causal = "causal" in op
    if op == "attention_decode":
        query = query[:, :, -1:].contiguous()
    if not op.endswith("backward"):
        return lambda: F.scaled_dot_product_attention(query, key, value, is_causal=causal)
    result, logsumexp = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(query, key, value, 0.0, causal)
    backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
    return lambda: backward(gradient, query, key, value, result, logsumexp, 0.0, causal)


def product_call(op, dtype, elements):
    """Square matrices that have that many elements; of bmm_N in batches of N x N."""
    if op.startswith("bmm_"):
        side = int(op[4:])
        batch = torch.randn(max(1, elements // side**2), side, side).to(dtype)
        return lambda: torch.bmm(batch, batch)
    side = int(elements**0.5)
    square, bias = torch.randn(side, side).to(dtype), torch.ones(side, dtype=dtype)
    return {
        "matmul": lambda: torch.matmul(square, square),
        "addmm": lambda: torch.addmm(square, square, square, beta=0.5, alpha=2),
        "linear": lambda: F.linear(square, square, bias),
    }[op]


def convolution_call(op, dtype):
    """A block of a residual network, or its first layer."""
    if op == "conv2d":
        images, filters = torch.randn(8, 64, 56, 56).to(dtype), torch.randn(64, 64, 3, 3).to(dtype)
        return lambda: F.conv2d(images, filters, padding=1)
    images, filters = torch.randn(32, 3, 224, 224).to(dtype), torch.randn(64, 3, 7, 7).to(dtype)
    return lambda: F.conv2d(images, filters, stride=2, padding=3)


def network_call(dtype):
    """Forward and backward of 20 layers of 16 neurons for 4 samples, for new gradients of all parameters."""
    with torch.enable_grad():
        layers = [torch.nn.Linear(16, 16, dtype=dtype) for _ in range(20)]
    parameters = [parameter for layer in layers for parameter in layer.parameters()]
    x = torch.randn(4, 16).to(dtype)

    def step():
        y = x
        for layer in layers:
            y = F.relu(F.linear(y, layer.weight, layer.bias))
        y.sum().backward()
        for parameter in parameters:
            parameter.grad = None

    return torch.enable_grad()(step)


def call_of(op, dtype, elements, longest_row):
    if op == "mlp_backward":
        return network_call(dtype)
    if op.startswith("attention"):
        return attention_call(op, dtype, elements)
    if op in ("matmul", "addmm", "linear") or op.startswith("bmm_"):
        return product_call(op, dtype, elements)
    if op.startswith("conv2d"):
        return convolution_call(op, dtype)
    count = max(elements, 4)
    x = torch.randn(count).to(dtype)
    row = min(count, longest_row)
    rows = x.view(-1, row)
    weight, bias = torch.ones(row, dtype=dtype), torch.zeros(row, dtype=dtype)
    if op == "adamw":
        return adamw_call(elements)
    positive = x.abs() + 0.1
    is_large = positive > 0.5
    target = torch.arange(rows.shape[0]) * 7919 % row
    other = torch.bfloat16 if dtype == torch.float32 else torch.float32
    order = torch.arange(rows.shape[0]) * 7919 % rows.shape[0]
    return {
        "add": lambda: torch.add(x, x),
        "sub": lambda: torch.sub(x, x),
        "div": lambda: torch.div(x, x),
        "maximum": lambda: torch.maximum(x, x),
        "greater": lambda: torch.gt(x, x),
        "clamp": lambda: torch.clamp(x, -0.5, 0.5),
        "cast": lambda: x.to(other),
        "pow": lambda: torch.pow(positive, positive),
        "sqrt": lambda: torch.sqrt(positive),
        "log": lambda: torch.log(positive),
        "sin": lambda: torch.sin(positive),
        "cos": lambda: torch.cos(positive),
        "erf": lambda: torch.erf(positive),
        "prod": lambda: torch.prod(positive),
        "norm": lambda: torch.linalg.vector_norm(positive),
        "where": lambda: torch.where(is_large, x, positive),
        "logsumexp_rows": lambda: torch.logsumexp(rows, 1),
        "cross_entropy": lambda: F.cross_entropy(rows, target, reduction="none"),
        "mul_number": lambda: torch.mul(x, 0.5),
        "exp": lambda: torch.exp(x),
        "tanh": lambda: torch.tanh(x),
        "gelu": lambda: F.gelu(x),
        "gelu_tanh": lambda: F.gelu(x, approximate="tanh"),
        "gelu_backward": lambda: torch.ops.aten.gelu_backward(x, x),
        "gelu_tanh_backward": lambda: torch.ops.aten.gelu_backward(x, x, approximate="tanh"),
        "silu_backward": lambda: torch.ops.aten.silu_backward(x, x),
        "tanh_backward": lambda: torch.ops.aten.tanh_backward(x, x),
        "sigmoid_backward": lambda: torch.ops.aten.sigmoid_backward(x, x),
        "randn": lambda: torch.randn(count, dtype=dtype),
        "rand": lambda: torch.rand(count, dtype=dtype),
        "randint": lambda: torch.randint(0, 1000, (count,)),
        "dropout": lambda: F.dropout(x, 0.5),
        "add_row": lambda: torch.add(rows, weight),
        "sum": lambda: torch.sum(x),
        "sum_rows": lambda: torch.sum(rows, 1),
        "sum_columns": lambda: torch.sum(rows, 0),
        "amax": lambda: torch.amax(x),
        "var_rows": lambda: torch.var(rows, 1),
        "cumsum_rows": lambda: torch.cumsum(rows, 1),
        "argmax_rows": lambda: torch.argmax(rows, 1),
        "sort_rows": lambda: torch.sort(rows, dim=1, stable=True),
        "pick_rows": lambda: torch.index_select(rows, 0, order),
        "softmax": lambda: torch.softmax(rows, 1),
        "log_softmax": lambda: torch.log_softmax(rows, 1),
        "layer_norm": lambda: F.layer_norm(rows, (row,), weight, bias),
        "rms_norm": lambda: F.rms_norm(rows, (row,), weight, 1e-5),
    }[op]


def nanoseconds(call):
    call()
    best = float("inf")
    calls = 1
    spent = 0
    while spent < 0.06:
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        took = time.perf_counter() - begin
        spent += took
        best = min(best, took / calls)
        if took < 0.002:
            calls *= 2
    return best * 1e9


if __name__ == "__main__":
    with torch.no_grad():
        for line in sys.stdin:
            op, dtype, elements, threads, row = line.split()
            torch.set_num_threads(int(threads))
            print(nanoseconds(call_of(op, DTYPES[dtype], int(elements), int(row))), flush=True)
