"""Writes tensor_samples.jsonl.gz: what PyTorch 2.15 computes on a CPU for each call of tests/dtensor/samples, for every dtype;
and tensor_edges.jsonl.gz: the same of matrices without rows and without columns, and, results alone, of inputs with nan, inf, -inf, 0 and -0.

    PYTHON_WITH_TORCH tests/vectors/make_sample_goldens.py tests/vectors

A case is {"op": the sample's name, "dtype": that of the inputs that stand for any, "in": [tensor, ...], "out": tensor} or "error": true
where PyTorch refuses. Where the result has a gradient: "grad", what comes in, and "grads", that of each input, null where it has none.
Elements are demanded to the bit, nan of any kind for nan, or, where the case has "rtol", within it of themselves and of the greatest one.
A case of tensor_edges has "size" too: the rows and columns of its matrices.
"""

import math
import operator
import random
import sys

import torch
import torch.nn.functional as F

from make_print_goldens import DTYPES, FLOATS, SHORT_NAMES, describe, write

rng = random.Random(20261128)
# Several roundings, of halves in PyTorch after each step; the order of additions is free.
TOLERANCE = {"f64": 1e-13, "f32": 4e-6, "f16": 4e-3, "bf16": 3e-2}
# PyTorch's 1/6 has the digits of an f32.
IMPRECISE = {"hardsigmoid": 1e-7}
ROWS, COLUMNS = 3, 4
WHOLE = (ROWS, COLUMNS)
# Some elements of an input of fractions, if there are any: in place of those that are drawn.
SPECIAL = []
# PyTorch passes the gradient on as if nothing had been written; it is 0.
GRADIENT_IS_WRONG = {"logical_and_", "logical_or_", "logical_xor_", "logical_not_", "logical_and_ (number)", "logical_or_ (number)", "logical_xor_ (number)"}


def tensor_of(name, values, shape):
    wide = torch.float64 if name in FLOATS else torch.bool if name == "bool" else torch.int64
    return torch.tensor(values, dtype=wide).to(DTYPES[name]).reshape(shape)


class Any:
    """An input that stands for any dtype."""

    def __init__(self, shape, of_floats, of_integers):
        self.shape, self.of_floats, self.of_integers = shape, of_floats, of_integers

    def made(self, name):
        count = math.prod(self.shape)
        if name == "bool":
            return tensor_of(name, [rng.random() < 0.6 for _ in range(count)], self.shape)
        draw = self.of_floats if name in FLOATS else self.of_integers
        drawn = [draw() for _ in range(count)]
        if SPECIAL and name in FLOATS:
            drawn = [rng.choice(SPECIAL) if rng.random() < 0.35 else x for x in drawn]
        return tensor_of(name, drawn, self.shape)


def away_from_zero():
    x = rng.gauss(0, 1)
    return x + math.copysign(0.25, x)


def made(*shape):
    return Any(shape or WHOLE, away_from_zero, lambda: rng.randint(0, 9))


def between(low, high, *shape):
    return Any(shape or WHOLE, lambda: rng.uniform(low, high), lambda: rng.randint(math.floor(low), max(math.floor(high), math.floor(low))))


def some_zeros():
    return Any(WHOLE, lambda: float(rng.randint(0, 2)), lambda: rng.randint(0, 2))


def whole(*shape):
    return Any(shape or WHOLE, lambda: float(rng.randint(1, 8)), lambda: rng.randint(1, 8))


def scalar():
    return Any((), away_from_zero, lambda: rng.randint(1, 9))


def numbers(below, *shape):
    """Of a dim that has none: 0, which is refused."""
    return torch.tensor([rng.randrange(max(below, 1)) for _ in range(math.prod(shape))], dtype=torch.int64).reshape(shape)


def mask(*shape):
    shape = shape or WHOLE
    return torch.tensor([rng.random() < 0.5 for _ in range(math.prod(shape))], dtype=torch.bool).reshape(shape)


SAMPLES = {}
EXACT = set()


def add(name, inputs, run, exact=False):
    SAMPLES[name] = (inputs, run)
    if exact:
        EXACT.add(name)


def add_all(names, inputs, space=torch, exact=False):
    for name in names.split():
        add(name, inputs, getattr(space, name), exact)


def arithmetic():
    add_all("add sub mul div atan2 logaddexp", [made(), made()])
    add_all("maximum minimum", [made(), made()], exact=True)
    add("pow", [between(0.5, 2), made()], torch.pow)
    add_all("floor_divide remainder fmod", [whole(), whole()], exact=True)
    add("trunc_divide", [whole(), whole()], lambda a, b: torch.div(a, b, rounding_mode="trunc"), exact=True)
    add("add, broadcast", [made(ROWS, 1), made(COLUMNS)], torch.add)
    add("mul, broadcast", [made(ROWS, 1), made(COLUMNS)], torch.mul)
    add("sub, one element", [made(), scalar()], torch.sub)
    add("div, one element", [made(), scalar()], torch.div)
    for name in ["add", "sub", "mul", "div", "pow", "remainder", "fmod", "floor_divide"]:
        add(f"{name} (number)", [whole()], lambda a, run=getattr(torch, name): run(a, 3))
    add("trunc_divide (number)", [whole()], lambda a: torch.div(a, 3, rounding_mode="trunc"), exact=True)
    # With a number PyTorch has clamp only.
    add("maximum (number)", [made()], lambda a: torch.maximum(a, torch.tensor(0.5)), exact=True)
    add("minimum (number)", [made()], lambda a: torch.minimum(a, torch.tensor(0.5)), exact=True)
    add("sub of a number", [whole()], lambda a: 5 - a, exact=True)
    add("div of a number", [whole()], lambda a: 5 / a)
    add("pow (fraction)", [between(0.5, 2)], lambda a: torch.pow(a, -1.5))
    for mode, name in [("floor", "rounded"), ("trunc", "truncated")]:
        add(f"div (number), {name}", [made()], lambda a, mode=mode: torch.div(a, 3, rounding_mode=mode), exact=True)
    add("div, truncated", [made(), whole()], lambda a, b: torch.div(a, b, rounding_mode="trunc"), exact=True)
    add("addcmul, once", [made(), made(), made()], torch.addcmul)
    add("addcdiv, once", [made(), made(), whole()], torch.addcdiv)
    add("addcmul", [made(), made(), made()], lambda a, b, c: torch.addcmul(a, b, c, value=2))
    add("addcdiv", [made(), made(), whole()], lambda a, b, c: torch.addcdiv(a, b, c, value=2))
    add("lerp", [made(), made(), made()], torch.lerp)
    add("lerp (number)", [made(), made()], lambda a, b: torch.lerp(a, b, 0.25))
    add_all("bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift", [between(0, 7), between(0, 7)], exact=True)
    add("bitwise_not", [between(0, 7)], torch.bitwise_not, exact=True)
    for name in "bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift".split():
        add(f"{name} (number)", [between(0, 7)], lambda a, run=getattr(torch, name): run(a, 3), exact=True)
    for name, of_two in {"&": operator.and_, "bitor": operator.or_, "^": operator.xor}.items():
        add(f"operator {name}", [between(0, 7), between(0, 7)], of_two, exact=True)
    add("operator ~", [between(0, 7)], operator.invert, exact=True)
    add("remainder of a number", [whole()], lambda a: torch.remainder(5, a), exact=True)
    add("pow of a number", [made()], lambda a: torch.pow(2.0, a))
    add("div, rounded", [made(), whole()], lambda a, b: torch.div(a, b, rounding_mode="floor"), exact=True)


def functions():
    add_all("neg abs sign square floor ceil round trunc", [made()], exact=True)
    add_all("exp expm1 reciprocal sin cos tan sinh cosh tanh atan asinh erf erfc sigmoid relu", [made()])
    add_all("silu mish hardsigmoid relu6 leaky_relu elu gelu softplus hardtanh", [made()], F)
    add("gelu (tanh)", [made()], lambda a: F.gelu(a, approximate="tanh"))
    add_all("sqrt rsqrt log log2 log10 log1p asin acos atanh", [between(0.1, 0.9)])
    add("acosh", [between(1.5, 3)], torch.acosh)
    add("clamp", [made()], lambda a: torch.clamp(a, -0.5, 0.5), exact=True)
    add("leaky_relu, slope", [made()], lambda a: F.leaky_relu(a, 0.25))
    add("elu, alpha", [made()], lambda a: F.elu(a, 2))
    add("softplus, beta and threshold", [made()], lambda a: F.softplus(a, 2, 1))
    add("hardtanh, bounds", [made()], lambda a: F.hardtanh(a, 0, 1.5))
    add("clamp, one bound", [made()], lambda a: torch.clamp(a, 0.5), exact=True)
    add("clamp, upper bound", [made()], lambda a: torch.clamp(a, max=0.5), exact=True)
    add("clamp of tensors", [made(), made(), made()], lambda a, b, c: torch.clamp(a, b, c + 1), exact=True)
    add("clamp of tensors, one bound", [made(), made()], torch.clamp, exact=True)
    add("clamp of tensors, upper bound", [made(), made()], lambda a, b: torch.clamp(a, max=b), exact=True)
    add_all("zeros_like ones_like clone", [made()], exact=True)
    add("full_like", [made()], lambda a: torch.full_like(a, 2), exact=True)
    add("to", [made()], lambda a: a.to(torch.float32), exact=True)
    add("to (f32 and back)", [made()], lambda a: a.to(torch.float32).to(torch.float64), exact=True)
    for name in ["f16", "bf16", "i64", "i32", "i16", "i8", "bool", "u8"]:
        add(f"to ({name})", [between(0.5, 9)], lambda a, name=name: a.to(DTYPES[name]), exact=True)
    add("contiguous", [made()], lambda a: a.transpose(0, 1).contiguous(), exact=True)


def comparisons():
    add_all("eq ne lt le gt ge logical_and logical_or logical_xor", [whole(), whole()], exact=True)
    add_all("logical_not isnan isinf isfinite", [whole()], exact=True)
    for name, sign in {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}.items():
        add(f"{name} (number)", [whole()], lambda a, run=getattr(torch, name): run(a, 4), exact=True)
        add(f"operator {sign}", [whole(), whole()], getattr(operator, name), exact=True)
    for name in ["logical_and", "logical_or", "logical_xor"]:
        add(f"{name} (number)", [some_zeros()], lambda a, run=getattr(torch, name): run(a, torch.tensor(2)), exact=True)
    line = mask(COLUMNS)
    add("where", [mask(), whole(), whole()], torch.where, exact=True)
    add("where, else a number", [mask(), whole()], lambda m, a: torch.where(m, a, 2), exact=True)
    add("where, a number first", [mask(), whole()], lambda m, b: torch.where(m, 3, b), exact=True)
    add("where, two numbers", [mask()], lambda m: torch.where(m, 2.5, 3.5), exact=True)
    add("where, broadcast", [line, whole(ROWS, 1), whole()], torch.where)  # its gradient is a sum
    add("masked_fill", [whole(), mask()], lambda a, m: a.masked_fill(m, 1), exact=True)
    add("masked_fill, broadcast", [whole(), line], lambda a, m: a.masked_fill(m, 1), exact=True)


def values_of(result):
    return result if isinstance(result, torch.Tensor) else result.values


def reductions():
    for name in ["sum", "mean", "any", "all", "amax", "amin", "logsumexp", "prod", "argmax", "argmin", "var", "cumsum", "cumprod"]:
        add(name, [made()], lambda a, run=getattr(torch, name): run(a, 0))
    add("max", [made()], lambda a: torch.max(a, 0).values, exact=True)
    add("min", [made()], lambda a: torch.min(a, 0).values, exact=True)
    add("stddev", [made()], lambda a: torch.std(a, 0))
    add("norm", [made()], lambda a: torch.linalg.vector_norm(a, 2, 0))
    both = (0, -1)
    for name in ["sum", "mean", "any", "all", "amax", "amin", "logsumexp"]:
        run = getattr(torch, name)
        add(f"{name}, all dims", [made()], lambda a, run=run: run(a, both) if run is torch.logsumexp else run(a))
        add(f"{name}, dims kept", [made()], lambda a, run=run: run(a, both, keepdim=True))
        add(f"{name}, dim -1 kept", [made()], lambda a, run=run: run(a, -1, keepdim=True))
    for name in ["prod", "max", "min", "argmax", "argmin"]:
        run = getattr(torch, name)
        add(f"{name}, all dims", [made()], run)
        add(f"{name}, dim -1 kept", [made()], lambda a, run=run: values_of(run(a, -1, keepdim=True)))
    for name in ["max", "min"]:
        add(f"{name}, indices", [made()], lambda a, run=getattr(torch, name): run(a, 0).indices, exact=True)
    add("cumsum, dim -1", [made()], lambda a: torch.cumsum(a, -1))
    add("cumprod, dim -1", [made()], lambda a: torch.cumprod(a, -1))
    for name, run in {"var": torch.var, "stddev": torch.std}.items():
        add(f"{name}, all dims", [made()], run)
        add(f"{name}, dim -1 kept", [made()], lambda a, run=run: run(a, -1, keepdim=True))
        add(f"{name}, correction 0", [made()], lambda a, run=run: run(a, 0, correction=0))
    add("norm, all dims", [made()], torch.linalg.vector_norm)
    add("norm, dim -1 kept", [made()], lambda a: torch.linalg.vector_norm(a, 2, -1, keepdim=True))
    for power in ["0", "1", "3", "-1.5", "inf", "-inf"]:
        add(f"norm, power {power}", [made()], lambda a, p=float(power): torch.linalg.vector_norm(a, p, 0))


def rows_and_losses():
    add("softmax", [made()], lambda a: F.softmax(a, 1))
    add("log_softmax", [made()], lambda a: F.log_softmax(a, 1))
    add("layer_norm", [made(), made(COLUMNS), made(COLUMNS)], lambda a, w, b: F.layer_norm(a, (COLUMNS,), w, b))
    add("rms_norm", [made(), made(COLUMNS)], lambda a, w: F.rms_norm(a, (COLUMNS,), w))
    add("softmax, dim 0", [made()], lambda a: F.softmax(a, 0))
    add("log_softmax, dim 0", [made()], lambda a: F.log_softmax(a, -2))
    add("layer_norm, no bias", [made(), made(COLUMNS)], lambda a, w: F.layer_norm(a, (COLUMNS,), w))
    add("layer_norm, no weight", [made(), made(COLUMNS)], lambda a, b: F.layer_norm(a, (COLUMNS,), None, b))
    add("layer_norm, plain", [made()], lambda a: F.layer_norm(a, (COLUMNS,)))
    layers = made(2, ROWS, COLUMNS)
    add("layer_norm, two dims, eps", [layers, made(), made()], lambda a, w, b: F.layer_norm(a, WHOLE, w, b, 0.1))
    add("rms_norm, plain", [made()], lambda a: F.rms_norm(a, (COLUMNS,)))
    add("rms_norm, two dims, eps", [layers, made()], lambda a, w: F.rms_norm(a, WHOLE, w, 0.1))
    class_losses()
    add("mse_loss", [made(), made()], F.mse_loss)
    add("mse_loss, sum", [made(), made()], lambda a, b: F.mse_loss(a, b, reduction="sum"))
    add("mse_loss, none", [made(), made()], lambda a, b: F.mse_loss(a, b, reduction="none"))


def class_losses():
    classes, each = numbers(COLUMNS, ROWS), torch.arange(ROWS)
    weight = between(0.5, 2, COLUMNS)
    for name, loss in {"cross_entropy": F.cross_entropy, "nll_loss": F.nll_loss}.items():
        add(name, [made(), classes], loss)
        add(f"{name}, sum", [made(), classes], lambda a, t, loss=loss: loss(a, t, reduction="sum"))
        add(f"{name}, none", [made(), classes], lambda a, t, loss=loss: loss(a, t, reduction="none"))
        add(f"{name}, ignore_index", [made(), each], lambda a, t, loss=loss: loss(a, t, ignore_index=1))
        add(f"{name}, weight", [made(), classes, weight], lambda a, t, w, loss=loss: loss(a, t, weight=w.detach()))
        add(f"{name}, weight, none", [made(), classes, weight], lambda a, t, w, loss=loss: loss(a, t, weight=w.detach(), reduction="none"))
        add(f"{name}, of places", [made(ROWS, COLUMNS, 2), numbers(COLUMNS, ROWS, 2)], loss)
        add(f"{name}, of one row", [made(COLUMNS), torch.tensor(2)], loss)
    smoothing = {"label_smoothing": 0.25}
    add("cross_entropy, label_smoothing", [made(), classes], lambda a, t: F.cross_entropy(a, t, **smoothing))
    add("cross_entropy, label_smoothing, weight", [made(), classes, weight], lambda a, t, w: F.cross_entropy(a, t, weight=w.detach(), **smoothing))
    add("cross_entropy, probabilities", [made(), between(0, 0.5)], F.cross_entropy)
    add("cross_entropy, probabilities, none", [made(), between(0, 0.5)], lambda a, t: F.cross_entropy(a, t, reduction="none"))


def products():
    a, b = made(), made(COLUMNS, ROWS)
    add_all("matmul mm", [a, b])
    add("mv", [a, made(COLUMNS)], torch.mv)
    add("dot", [made(COLUMNS), made(COLUMNS)], torch.dot)
    add("bmm", [made(2, ROWS, COLUMNS), made(2, COLUMNS, ROWS)], torch.bmm)
    add("addmm", [made(ROWS), a, b], torch.addmm)
    add("baddbmm", [made(2, ROWS, ROWS), made(2, ROWS, COLUMNS), made(2, COLUMNS, ROWS)], torch.baddbmm)
    add("linear", [a, made(), made(ROWS)], F.linear)
    add("linear, no bias", [a, made()], F.linear)
    layers, others = made(2, ROWS, COLUMNS), made(2, COLUMNS, ROWS)
    add("linear, layers", [layers, made(3, COLUMNS), made(3)], F.linear)
    for form, operands in {
        "matrix and vector": [a, made(COLUMNS)], "vector and matrix": [made(ROWS), a], "vectors": [made(COLUMNS), made(COLUMNS)],
        "layers": [layers, others], "layers and matrix": [layers, b], "matrix and layers": [a, others],
        "broadcast": [made(2, 1, ROWS, COLUMNS), made(3, COLUMNS, 2)],
    }.items():  # fmt: skip
        add(f"matmul, {form}", operands, torch.matmul)
    square = made(ROWS, ROWS)
    add("addmm, beta and alpha", [square, a, b], lambda c, a, b: torch.addmm(c, a, b, beta=2, alpha=3))
    add("addmm, beta 0", [square, a, b], lambda c, a, b: torch.addmm(c, a, b, beta=0))
    add("baddbmm, beta and alpha", [square, layers, others], lambda c, a, b: torch.baddbmm(c, a, b, beta=2, alpha=3))
    row, column = made(ROWS), made(COLUMNS)
    for equation, operands in {
        "ij,jk->ik": [a, b], "ij,jk": [a, b], "ij->ji": [a], "ij->": [between(0.5, 2)], "ba": [a], "ii->i": [made(4, 4)], "ii": [made(4, 4)],
        "i,j->ij": [row, column], "ij,j->i": [a, column], "ij,ij->ij": [a, made()], "bij,bkj->bik": [layers, made(2, 3, COLUMNS)],
        "ij,jk,k->i": [a, b, row], "...ij,...jk->...ik": [layers, b], "...j->...": [a], "i...,i->...i": [a, row],
        "...i,...": [a, made(1, ROWS)], "...,i->i": [a, column],
    }.items():  # fmt: skip
        add(f"einsum {equation}", operands, lambda *operands, equation=equation: torch.einsum(equation, *operands))


def piece_of(pieces):
    """The second, or the only one."""
    return pieces[min(1, len(pieces) - 1)]


def more_views(layers):
    turned = made(COLUMNS, 1, ROWS)
    return [
        ("view, layers", [layers], lambda a: a.view(2 * ROWS, COLUMNS)), ("view_as", [made(), turned], lambda a, b: a.view_as(b)),
        ("reshape, transposed", [made()], lambda a: a.t().reshape(ROWS * COLUMNS)), ("reshape_as", [made(), turned], lambda a, b: a.reshape_as(b)),
        ("unsqueeze, last", [made()], lambda a: a.unsqueeze(-1)), ("squeeze, dim -3", [made(1, ROWS, COLUMNS)], lambda a: a.squeeze(-3)),
        ("expand, new dims", [made()], lambda a: a.expand(2, -1, -1)), ("expand_as", [made(COLUMNS), made()], lambda a, b: a.expand_as(b)),
        ("flatten, some dims", [layers], lambda a: a.flatten(1, 2)), ("unflatten, the rest", [made(4, COLUMNS)], lambda a: a.unflatten(0, (2, -1))),
        ("repeat, new dims", [made()], lambda a: a.repeat(2, 1, 3)), ("transpose, last dims", [layers], lambda a: a.transpose(-1, -2)),
        ("t", [made()], lambda a: a.t()), ("permute, layers", [layers], lambda a: a.permute(2, 0, -2)),
        ("movedim, layers", [layers], lambda a: a.movedim(-1, 0)), ("slice, step", [made()], lambda a: a[:, 0:9:2]),
        ("slice, from the end", [made()], lambda a: a[-2:-1]), ("narrow", [made()], lambda a: a.narrow(0, 0, max(ROWS - 1, 0))),
        ("select, last", [made()], lambda a: a.select(-1, -1)), ("split, dim -1", [made()], lambda a: piece_of(a.split(3, -1))),
        ("split, sizes", [made()], lambda a: a.split([0, COLUMNS], 1)[1]), ("chunk, the last of fewer", [made()], lambda a: a.chunk(3, 1)[-1]),
        ("unbind, dim -1", [made()], lambda a: piece_of(a.unbind(-1))), ("cat, dim -1", [made(), made(ROWS, 2), made(ROWS, 1)], lambda *all: torch.cat(all, -1)),
        ("stack, dim -1", [made(), made(), made()], lambda *all: torch.stack(all, -1)),
    ]  # fmt: skip


def views():
    column = made(ROWS, 1)
    for name, inputs, run in [
        ("view", [made()], lambda a: a.view(ROWS * COLUMNS)), ("reshape", [made()], lambda a: a.reshape(1, ROWS, COLUMNS)),
        ("transpose", [made()], lambda a: a.transpose(0, 1)), ("permute", [made()], lambda a: a.permute(1, 0)),
        ("unsqueeze", [made()], lambda a: a.unsqueeze(1)), ("squeeze", [column], lambda a: a.squeeze(1)),
        ("expand", [column], lambda a: a.expand(ROWS, 3)), ("slice", [made()], lambda a: a[1:9]), ("select", [made()], lambda a: a[1]),
        ("flatten", [made()], torch.flatten), ("unflatten", [made()], lambda a: a.unflatten(1, (1, COLUMNS))),
        ("movedim", [made()], lambda a: a.movedim(0, 1)), ("repeat", [made()], lambda a: a.repeat(2, 1)),
        ("cat", [made(), made()], lambda a, b: torch.cat([a, b])), ("stack", [made(), made()], lambda a, b: torch.stack([a, b])),
        *more_views(made(2, ROWS, COLUMNS)),
        ("split", [made()], lambda a: piece_of(a.split(1))), ("chunk", [made()], lambda a: piece_of(a.chunk(2))), ("unbind", [made()], lambda a: piece_of(a.unbind())),
    ]:  # fmt: skip
        add(name, inputs, run, exact="expand" not in name and "repeat" not in name)  # whose gradients are sums


def places():
    x, list_of_rows, beside = made(), numbers(ROWS, 3), numbers(ROWS, 2, COLUMNS)
    line, places = numbers(ROWS, 3), numbers(COLUMNS, 2, 1)
    add("index_select", [x, list_of_rows], lambda a, i: a.index_select(0, i))
    add("index_add", [x, list_of_rows, made(3, COLUMNS)], lambda a, i, s: a.index_add(0, i, s))
    add("gather", [x, beside], lambda a, i: a.gather(0, i))
    add("scatter_add", [x, beside, made(2, COLUMNS)], lambda a, i, s: a.scatter_add(0, i, s))
    each_row = torch.arange(ROWS).unsqueeze(1).expand(WHOLE).clone()
    add("scatter", [x, each_row, made()], lambda a, i, s: a.scatter(0, i, s), exact=True)
    add("masked_select", [x, mask()], torch.masked_select, exact=True)
    add("nonzero", [x], torch.nonzero, exact=True)
    add("index", [x, list_of_rows], lambda a, i: a[i])
    add("index_put", [x, torch.arange(2), made(2, COLUMNS)], lambda a, i, v: a.index_put((i,), v), exact=True)
    add("index of two", [x, line, places], lambda a, i, j: a[i, j])
    add("index_put, accumulated", [x, line, places, made(2, 3)], lambda a, i, j, v: a.index_put((i, j), v, accumulate=True))
    add("one_hot", [between(0, ROWS - 1, 3)], lambda a: F.one_hot(a, ROWS), exact=True)
    add("embedding", [x, numbers(ROWS, 2, 3)], lambda a, i: F.embedding(i, a))
    columns, line_mask = numbers(COLUMNS, 3), mask(COLUMNS)
    add("index_select, dim -1", [x, columns], lambda a, i: a.index_select(-1, i))
    add("gather, dim -1", [x, numbers(COLUMNS, ROWS, 2)], lambda a, i: a.gather(-1, i))
    add("masked_select, broadcast", [x, line_mask], torch.masked_select, exact=True)
    add("index, from the end", [x, list_of_rows - ROWS], lambda a, i: a[i])
    add("index, a mask", [x, mask()], lambda a, m: a[m], exact=True)
    add("index, i32", [x, list_of_rows.to(torch.int32)], lambda a, i: a[i])
    add("embedding, padding_idx", [x, numbers(ROWS, 2, 3)], lambda a, i: F.embedding(i, a, padding_idx=0))
    add("index_add, alpha, dim -1", [x, columns, made(ROWS, 3)], lambda a, i, s: a.index_add(-1, i, s, alpha=2))
    add("scatter_add, dim -1", [x, numbers(COLUMNS, ROWS, 2), made(ROWS, 2)], lambda a, i, s: a.scatter_add(-1, i, s))
    each_column = torch.arange(COLUMNS).expand(WHOLE).clone()
    add("scatter, dim -1", [x, each_column, made()], lambda a, i, s: a.scatter(-1, i, s), exact=True)
    add("scatter (number)", [x, beside], lambda a, i: a.scatter(0, i, 2), exact=True)
    add("index_put, one value", [x, torch.arange(2), scalar()], lambda a, i, v: a.index_put((i,), v))
    orders(x)


def first_of_row(a):
    # Of equal elements topk's first is any of them in PyTorch, and that of sort() here.
    return torch.sort(a, stable=True, descending=True).indices[:, :1] if COLUMNS else torch.topk(a, 1).indices


def orders(x):
    add("flip, all dims", [x], lambda a: a.flip(0, -1), exact=True)
    add("roll, two dims", [x], lambda a: a.roll((-1, 2), (0, 1)), exact=True)
    add("roll, no dims", [x], lambda a: a.roll(3), exact=True)
    add("tril, above", [x], lambda a: torch.tril(a, 1), exact=True)
    add("triu, below", [x], lambda a: torch.triu(a, -1), exact=True)
    add("pad, value, dim -1", [x], lambda a: F.pad(a, (2, 1), value=3), exact=True)
    add("pad, cropped", [x], lambda a: F.pad(a, (1, 0, -1, 1), value=3), exact=True)
    add("sort, descending", [x], lambda a: torch.sort(a, dim=0, stable=True, descending=True).values, exact=True)
    add("sort, dim -1", [x], lambda a: torch.sort(a, stable=True).values, exact=True)
    add("sort, indices", [x], lambda a: torch.sort(a, dim=0, stable=True).indices, exact=True)
    add("argsort, descending, dim -1", [x], lambda a: torch.argsort(a, stable=True, descending=True), exact=True)
    add("topk, smallest", [between(-9, 9)], lambda a: torch.topk(a, 2, 0, largest=False).values, exact=True)
    add("topk, dim -1", [between(-9, 9)], lambda a: torch.topk(a, 1).values, exact=True)
    add("topk, indices", [x], first_of_row, exact=True)
    add("flip", [x], lambda a: a.flip(0), exact=True)
    add("roll", [x], lambda a: a.roll(1, 0), exact=True)
    add("tril", [x], torch.tril, exact=True)
    add("triu", [x], lambda a: torch.triu(a, 1), exact=True)
    add("pad", [x], lambda a: F.pad(a, (0, 0, 1, 2)), exact=True)
    add("sort", [x], lambda a: torch.sort(a, dim=0, stable=True).values, exact=True)
    add("argsort", [x], lambda a: torch.argsort(a, dim=0, stable=True), exact=True)
    add("topk", [between(-9, 9)], lambda a: torch.topk(a, 2, 0).values, exact=True)


def networks():
    heads = (2, 2, ROWS, 4)
    add("scaled_dot_product_attention", [made(*heads)] * 3, lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True))
    three = [made(*heads)] * 3
    attention = F.scaled_dot_product_attention
    add("scaled_dot_product_attention, all keys", three, attention)
    add("scaled_dot_product_attention, scale", three, lambda q, k, v: attention(q, k, v, scale=0.3))
    # The last query sees no key.
    seen = torch.tensor([[True, True, False], [False, True, True], [False, False, False]])[:ROWS, :ROWS]
    add("scaled_dot_product_attention, mask", [*three, seen], attention)
    add("scaled_dot_product_attention, weights", [*three, made(ROWS, ROWS)], attention)
    one_head = made(2, 1, ROWS + 1, 4)
    add("scaled_dot_product_attention, grouped", [made(*heads), one_head, one_head], lambda q, k, v: attention(q, k, v, enable_gqa=True))
    images, weight, bias = made(2, 2, ROWS, COLUMNS), made(4, 2, 2, 2), made(4)
    add("conv2d", [images, weight, bias], F.conv2d)
    add("conv2d, no bias", [images, weight], F.conv2d)
    add("conv2d, stride and padding", [images, weight, bias], lambda x, w, b: F.conv2d(x, w, b, (2, 1), (1, 2)))
    add("conv2d, dilation", [images, weight, bias], lambda x, w, b: F.conv2d(x, w, b, 1, 1, 2))
    add("conv2d, groups", [images, made(4, 1, 2, 2), bias], lambda x, w, b: F.conv2d(x, w, b, 1, 1, 1, 2))
    add("conv2d, one image", [made(2, ROWS, COLUMNS), weight, bias], F.conv2d)
    add("dropout, in evaluation", [made()], lambda a: F.dropout(a, 0.3, training=False), exact=True)
    add("dropout, of all", [made()], lambda a: F.dropout(a, 1.0), exact=True)


def in_place_form(name, *arguments, **named):
    """Of the method, on a copy: the leaf itself may not be written to."""
    return lambda a, *others: getattr(a.clone(), name)(*others, *arguments, **named)


def in_place():
    for name, inputs in {
        "add_": [made(), made()], "sub_": [made(), made()], "mul_": [made(), made()], "div_": [whole(), whole()],
        "pow_": [between(0.5, 2), made()], "lerp_": [made(), made(), made()], "copy_": [made(), made()],
        "neg_": [made()], "abs_": [made()], "exp_": [made()], "reciprocal_": [made()], "sigmoid_": [made()], "tanh_": [made()], "relu_": [made()],
        "floor_": [made()], "ceil_": [made()], "round_": [made()], "trunc_": [made()], "zero_": [made()],
        "floor_divide_": [whole(), whole()], "remainder_": [whole(), whole()], "fmod_": [whole(), whole()], "atan2_": [made(), made()],
        "logical_and_": [made(), made()], "logical_or_": [made(), made()], "logical_xor_": [made(), made()], "bitwise_not_": [between(0, 7)],
        "acosh_": [between(1.5, 3)], "log_": [between(0.1, 0.9)], "sqrt_": [between(0.1, 0.9)], "rsqrt_": [between(0.1, 0.9)],
    }.items():  # fmt: skip
        add(name, inputs, in_place_form(name))
    for name in "square_ sign_ sin_ cos_ tan_ sinh_ cosh_ atan_ asinh_ erf_ erfc_ expm1_ logical_not_ tril_".split():
        add(name, [made()], in_place_form(name))
    for name in "log2_ log10_ log1p_ asin_ acos_ atanh_".split():
        add(name, [between(0.1, 0.9)], in_place_form(name))
    for name in "bitwise_and_ bitwise_or_ bitwise_xor_ bitwise_left_shift_ bitwise_right_shift_".split():
        add(name, [between(0, 7), between(0, 7)], in_place_form(name))
    list_of_rows, beside, each_row = numbers(ROWS, 3), numbers(ROWS, 2, COLUMNS), torch.arange(ROWS).unsqueeze(1).expand(WHOLE).clone()
    add("index_add_", [made(), list_of_rows, made(3, COLUMNS)], lambda a, i, s: a.clone().index_add_(0, i, s))
    add("index_put_", [made(), torch.arange(2), made(2, COLUMNS)], lambda a, i, v: a.clone().index_put_((i,), v))
    add("scatter_", [made(), each_row, made()], lambda a, i, s: a.clone().scatter_(0, i, s))
    add("scatter_add_", [made(), beside, made(2, COLUMNS)], lambda a, i, s: a.clone().scatter_add_(0, i, s))
    add("triu_", [made()], in_place_form("triu_", 1))
    add("cumsum_", [made()], in_place_form("cumsum_", 0))
    add("cumprod_", [made()], in_place_form("cumprod_", 0))
    for name in ["add_", "sub_", "mul_", "div_", "pow_", "floor_divide_", "remainder_", "fmod_"]:
        add(f"{name} (number)", [whole()], in_place_form(name, 3))
    for name in ["logical_and_", "logical_or_", "logical_xor_"]:
        add(f"{name} (number)", [some_zeros()], in_place_form(name, torch.tensor(2)))
    for name in ["bitwise_and_", "bitwise_or_", "bitwise_xor_", "bitwise_left_shift_", "bitwise_right_shift_"]:
        add(f"{name} (number)", [between(0, 7)], in_place_form(name, 3))
    add("clamp_, one bound", [made()], in_place_form("clamp_", 0.5))
    add("clamp_, upper bound", [made()], in_place_form("clamp_", None, 0.5))
    add("clamp_, tensors", [made(), made(), between(2, 3)], in_place_form("clamp_"))
    add("clamp_, one tensor", [made(), made()], in_place_form("clamp_"))
    add("clamp_, upper tensor", [made(), made()], lambda a, b: a.clone().clamp_(max=b))
    add("copy_, broadcast", [made(), made(COLUMNS)], in_place_form("copy_"))
    add("index_add_, alpha", [made(), list_of_rows, made(3, COLUMNS)], lambda a, i, s: a.clone().index_add_(0, i, s, alpha=2))
    add("index_put_, accumulated", [made(), numbers(ROWS, 3), numbers(COLUMNS, 2, 1), made(2, 3)],
        lambda a, i, j, v: a.clone().index_put_((i, j), v, accumulate=True))  # fmt: skip
    add("scatter_ (number)", [made(), beside], lambda a, i: a.clone().scatter_(0, i, 2))
    add("tril_, below", [made()], in_place_form("tril_", -1))
    add("triu_, all", [made()], in_place_form("triu_"))
    add("add_, times", [made(), made()], in_place_form("add_", alpha=2))
    add("sub_, times", [made(), made()], in_place_form("sub_", alpha=2))
    add("addcmul_", [made(), made(), made()], in_place_form("addcmul_", value=2))
    add("addcdiv_", [made(), made(), whole()], in_place_form("addcdiv_", value=2))
    add("lerp_ (number)", [made(), made()], in_place_form("lerp_", 0.25))
    add("fill_", [made()], in_place_form("fill_", 2))
    add("clamp_", [made()], in_place_form("clamp_", -0.5, 0.5))
    add("masked_fill_", [made(), mask()], in_place_form("masked_fill_", 1))


def keywords():
    """dtype=, decimals= and reduce=. Last, and without numbers drawn now, so that those of all others stay."""
    f64, i32 = torch.float64, torch.int32
    for name in ["sum", "mean", "prod", "cumsum", "cumprod", "softmax", "log_softmax"]:
        add(f"{name}, dtype f64", [made()], lambda a, run=getattr(torch, name): run(a, 0, dtype=f64))
    for name in ["sum", "prod", "cumsum", "cumprod"]:
        add(f"{name}, dtype i32", [whole()], lambda a, run=getattr(torch, name): run(a.detach(), 0, dtype=i32))
    for name in ["sum", "mean", "prod"]:
        add(f"{name}, all dims, dtype f64", [made()], lambda a, run=getattr(torch, name): run(a, dtype=f64))
    add("sum, dims kept, dtype f64", [made()], lambda a: torch.sum(a, (0, -1), keepdim=True, dtype=f64))
    add("prod, dim -1 kept, dtype f64", [made()], lambda a: torch.prod(a, -1, keepdim=True, dtype=f64))
    for decimals in [1, -1, 3]:
        add(f"round, decimals {decimals}", [between(0, 60)], lambda a, d=decimals: torch.round(a, decimals=d), exact=True)
    add("round_, decimals 1", [made()], in_place_form("round_", decimals=1))
    beside, source = torch.tensor([[0, 2, 1, 0], [0, 1, 1, 2]])[:, :COLUMNS], made(2, COLUMNS)
    for reduce in ["sum", "prod", "mean", "amax", "amin"]:
        for form, include_self in {"": True, ", without self": False}.items():
            add(f"scatter_reduce, {reduce}{form}", [made(), beside, source],
                lambda a, i, s, r=reduce, include=include_self: a.scatter_reduce(0, i, s, r, include_self=include))  # fmt: skip
        add(f"scatter_reduce, {reduce}, dim -1", [made(), torch.tensor([[3, 0], [1, 1], [0, 2]])[:ROWS], made(ROWS, 2)],
            lambda a, i, s, r=reduce: a.scatter_reduce(-1, i, s, r))  # fmt: skip
    for reduce in ["add", "multiply"]:
        add(f"scatter, {reduce}", [made(), beside, source], lambda a, i, s, r=reduce: a.scatter(0, i, s, reduce=r))
        add(f"scatter (number), {reduce}", [made(), beside], lambda a, i, r=reduce: a.scatter(0, i, 2, reduce=r))
        add(f"scatter_, {reduce}", [made(), beside, source], lambda a, i, s, r=reduce: a.clone().scatter_(0, i, s, reduce=r))
        add(f"scatter_ (number), {reduce}", [made(), beside], lambda a, i, r=reduce: a.clone().scatter_(0, i, 2, reduce=r))
    add("scatter_reduce_", [made(), beside, source], lambda a, i, s: a.clone().scatter_reduce_(0, i, s, "prod", include_self=False))
    for name in ["eq_", "ne_", "lt_", "le_", "gt_", "ge_"]:
        add(name, [whole(), whole()], in_place_form(name), exact=True)
        add(f"{name} (number)", [whole()], in_place_form(name, 4), exact=True)


def case(op, dtype, inputs, run, with_gradient=True):
    described = {"op": op, "dtype": dtype, "in": [describe(x) for x in inputs]}
    leaves = [x.clone().requires_grad_(x.is_floating_point()) for x in inputs]
    try:
        result = run(*leaves)
        described["out"] = describe(result.detach().contiguous())
    except (RuntimeError, TypeError, IndexError, ZeroDivisionError, ValueError, NotImplementedError):
        return {**described, "error": True}
    if op not in EXACT and result.is_floating_point():
        coarsest = max(TOLERANCE.get(dtype, 0), TOLERANCE[SHORT_NAMES[result.dtype]])
        described["rtol"] = max(coarsest, IMPRECISE.get(op, 0))
    if with_gradient and result.requires_grad and op not in GRADIENT_IS_WRONG:
        name = SHORT_NAMES[result.dtype]
        grad = tensor_of(name, [rng.gauss(0, 1) for _ in range(result.numel())], result.shape)
        wanted = [x for x in leaves if x.requires_grad]
        try:
            found = iter(torch.autograd.grad(result, wanted, grad, allow_unused=True))
        except RuntimeError as error:
            # The gradient of index_add picks from what has no elements.
            assert "is not implemented" in str(error) or result.numel() == 0, (op, error)
            return described
        grads = [next(found) if x.requires_grad else None for x in leaves]
        described["grad"] = describe(grad)
        described["grads"] = [None if g is None else describe(g.contiguous()) for g in grads]
    return described


def add_all_samples(rows, columns):
    global ROWS, COLUMNS, WHOLE
    ROWS, COLUMNS, WHOLE = rows, columns, (rows, columns)
    SAMPLES.clear()
    for family in [arithmetic, functions, comparisons, reductions, rows_and_losses, products, views, places, networks, in_place, keywords]:
        family()


def cases_of(dtypes, **options):
    for name, (inputs, run) in SAMPLES.items():
        yield [case(name, dtype, [x.made(dtype) if isinstance(x, Any) else x for x in inputs], run, **options) for dtype in dtypes]


def all_cases():
    add_all_samples(3, 4)
    for cases in cases_of(DTYPES):
        assert any("out" in c for c in cases), cases[0]["op"]
        yield from cases


def edge_cases():
    for size in [(0, 4), (3, 0)]:
        add_all_samples(*size)
        for cases in cases_of(["f32", "i64"]):
            yield from [{"size": size, **c} for c in cases]
    SPECIAL.extend([math.nan, math.inf, -math.inf, 0.0, -0.0])
    add_all_samples(3, 4)
    # Of a mean of rows mostly nan is left: the forms without a reduction tell a right row from a wrong one.
    for cases in cases_of(["f32", "f64", "f16", "bf16"], with_gradient=False):
        # What is refused is so for its dtype.
        yield from [{"size": (3, 4), **c} for c in cases if "error" not in c]


if __name__ == "__main__":
    assert torch.__version__.startswith("2.15"), torch.__version__
    torch.set_num_threads(1)
    DTYPES.update({"i16": torch.int16, "i8": torch.int8})
    SHORT_NAMES.update({dtype: name for name, dtype in DTYPES.items()})
    write(f"{sys.argv[1]}/tensor_samples.jsonl.gz", list(all_cases()))
    write(f"{sys.argv[1]}/tensor_edges.jsonl.gz", list(edge_cases()))
