"""Writes tensor_operators.jsonl.gz and tensor_convolutions.jsonl.gz: what PyTorch 2.11 computes on a CPU, operator by operator, for every dtype.

    PYTHON_WITH_TORCH tests/vectors/make_operator_goldens.py tests/vectors

With --short-integers it writes tensor_short_integers.jsonl.gz instead: the cases that have an int16 or int8 tensor, of PyTorch 2.15;
with --no-dims tensor_no_dims.jsonl.gz: what orders, picks and scans make of a tensor without dims, of PyTorch 2.15.

A case is {"op", "in": [tensor or {"number"}, ...], "args", "out": [tensor, ...]} or "error": true where PyTorch refuses. Tensors
are make_print_goldens.py's. Elements are demanded to the bit, nan of any kind for nan, or, where the case has them, within
"rtol" times the element plus "atol".
"""

import itertools
import math
import random
import sys

import torch
import torch.nn.functional as F

from make_print_goldens import DTYPES, FLOATS, INTEGERS, SHORT_NAMES, describe, write

rng = random.Random(20261122)
TOLERANCE = {"f64": 1e-14, "f32": 1.2e-6, "f16": 1.1e-3, "bf16": 8e-3}


def tensor_of(name, values, shape=None):
    wide = torch.float64 if name in FLOATS else torch.bool if name == "bool" else torch.int64
    made = torch.tensor(values, dtype=wide).to(DTYPES[name])
    return made.reshape(shape) if shape is not None else made


def case(op, inputs, args, run, rtol=None, atol=None):
    described = [describe(x) if isinstance(x, torch.Tensor) else {"number": x} for x in inputs]
    try:
        results = run(*[x.clone() if isinstance(x, torch.Tensor) and op.endswith("_") else x for x in inputs])
        results = list(results) if isinstance(results, (tuple, list)) else [results]
        outcome = {"out": [describe(r.contiguous()) for r in results]}
    except (RuntimeError, TypeError, IndexError, ZeroDivisionError, ValueError):
        outcome = {"error": True}
    name = SHORT_NAMES[results[0].dtype] if "out" in outcome else None
    if rtol is True and name in TOLERANCE:
        outcome["rtol"] = TOLERANCE[name]
    elif isinstance(rtol, float):
        outcome["rtol"] = rtol
    if atol is not None:
        outcome["atol"] = atol * (1 if name not in TOLERANCE else TOLERANCE[name])
    return {"op": op, "in": described, "args": args, **outcome}


FLOAT_VALUES = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.5, -2.5, 1.5, 3.0, -7.25, 1e-3, -1e-6, 20.0, -30.0, 88.0, 1e4, -1e4, 65504.0,
                math.inf, -math.inf, math.nan, 1e-41, 0.30000001192092896]  # fmt: skip
INTEGER_VALUES = [0, 1, -1, 2, -2, 3, 7, -7, 100, -100, 127, 200, 255, 5, -6, 31, 8]


def values(name):
    if name in FLOATS:
        return tensor_of(name, FLOAT_VALUES)
    if name == "bool":
        return tensor_of(name, [True, False, True])
    return tensor_of(name, INTEGER_VALUES)


EXACT = {
    "neg": torch.neg, "abs": torch.abs, "sign": torch.sign, "square": torch.square, "floor": torch.floor, "ceil": torch.ceil,
    "round": torch.round, "trunc": torch.trunc, "relu": torch.relu, "isnan": torch.isnan, "isinf": torch.isinf,
    "isfinite": torch.isfinite, "logical_not": torch.logical_not, "bitwise_not": torch.bitwise_not,     "reciprocal": torch.reciprocal, "hardtanh": F.hardtanh, "leaky_relu": F.leaky_relu,
}  # fmt: skip
APPROXIMATE = {
    "sqrt": torch.sqrt, "rsqrt": torch.rsqrt, "exp": torch.exp, "log": torch.log, "log2": torch.log2, "log10": torch.log10, "log1p": torch.log1p,
    "expm1": torch.expm1, "sin": torch.sin, "cos": torch.cos, "tan": torch.tan, "sinh": torch.sinh, "cosh": torch.cosh,
    "tanh": torch.tanh, "asin": torch.asin, "acos": torch.acos, "atan": torch.atan, "erf": torch.erf, "erfc": torch.erfc,
    "sigmoid": torch.sigmoid, "gelu": F.gelu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "silu": F.silu, "elu": F.elu,
    "softplus": F.softplus,
}  # fmt: skip
CANCELS = {"gelu", "gelu_tanh", "softplus"}
IMPRECISE = {"erf"}  # PyTorch's own, for small numbers in half types


def values_of_one(name, op):
    a = values(name)  # PyTorch's gelu of infinity is nan in some dtypes
    return a[~torch.isinf(a)] if name in FLOATS and op in CANCELS else a


def unary():
    for name in DTYPES:
        for op, run in EXACT.items():
            yield case(op, [values(name)], {}, run)
        for op, run in APPROXIMATE.items():
            yield case(op, [values_of_one(name, op)], {}, run, rtol=True, atol=8 if op in CANCELS | IMPRECISE else 0)
    for name, (op, run) in itertools.product(FLOATS, APPROXIMATE.items()):
        many = tensor_of(name, [rng.gauss(0, 3) for _ in range(70)], (7, 10))[1:, ::3]
        yield case(op, [many], {}, run, rtol=True, atol=8 if op in CANCELS | {"sin", "cos", "tan", "log", "log2", "log10"} else 0)


BINARY = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div, "maximum": torch.maximum, "minimum": torch.minimum,
    "floor_divide": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "trunc_divide": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "remainder": torch.remainder, "fmod": torch.fmod, "eq": torch.eq, "ne": torch.ne, "lt": torch.lt, "le": torch.le,
    "gt": torch.gt, "ge": torch.ge, "logical_and": torch.logical_and, "logical_or": torch.logical_or,
    "logical_xor": torch.logical_xor, "bitwise_and": torch.bitwise_and, "bitwise_or": torch.bitwise_or,
    "bitwise_xor": torch.bitwise_xor, "bitwise_left_shift": torch.bitwise_left_shift,
    "bitwise_right_shift": torch.bitwise_right_shift, "pow": torch.pow, "atan2": torch.atan2,
}  # fmt: skip
ROUGH = {"pow", "atan2"}

UNSIGNED_ZERO = {"maximum", "minimum", "pow"}  # which of 0 and -0 is as it happens
DIVISIONS = {"floor_divide", "trunc_divide", "remainder", "fmod"}
NUMBERS = [2, -3, 0.5, 2.5, 0.1, True]


def roughness(op, name):
    """PyTorch rounds the steps of some operations to half types."""
    if op in {"floor_divide", "trunc_divide", "lerp"} and name in {"f16", "bf16"}:
        return 0.02
    return op in ROUGH or op == "lerp"


def pairs(name, op):
    a = values(name)
    if op in DIVISIONS and name in FLOATS:
        a = a[a.abs() != tensor_of(name, [1e-41])]  # SLEEF's fmod gives nan for a subnormal divisor
    b = tensor_of(name, [rng.choice(a.tolist()) for _ in range(len(a))])
    if op in DIVISIONS and name not in FLOATS and name != "bool":
        b = torch.where(b == 0, torch.tensor(3, dtype=b.dtype), b)
    if op == "pow" and name in INTEGERS:
        b = b % 7 if name == "u8" else b % 7 - 1
    return a, b


def binary():
    for name, (op, run) in itertools.product(DTYPES, BINARY.items()):
        a, b = pairs(name, op)
        for x, y in [(a, b), (a[:3].reshape(3, 1), b[:3])]:
            yield case(op, [x, y], {}, run, rtol=roughness(op, name), atol=1e-30 if op in UNSIGNED_ZERO else None)
    for a_name, b_name, op in itertools.product(DTYPES, DTYPES, ["maximum", "lt", "remainder", "pow", "bitwise_or", "eq", "sub"]):
        a, b = tensor_of(a_name, [1, 0, 5, 3]), tensor_of(b_name, [1, 3, 1, 2])
        yield case(op, [a, b], {}, BINARY[op], rtol=op in ROUGH)
        yield case(op, [a, tensor_of(b_name, [3], ())], {}, BINARY[op], rtol=op in ROUGH)
    names = ["add", "sub", "mul", "div", "floor_divide", "remainder", "fmod", "pow", "eq", "lt", "ge", "bitwise_and"]
    for name, op, number in itertools.product(DTYPES, names, NUMBERS):
        a = values(name)
        if op in DIVISIONS and name in FLOATS:
            a = a[a.abs() != tensor_of(name, [1e-41])]
        if not (op == "pow" and name == "bool" and number is True):
            yield case(op, [a, number], {}, BINARY[op], rtol=roughness(op, name), atol=1e-30 if op == "pow" else None)
    for name in INTEGERS:
        zero = tensor_of(name, [4, 0])
        for op in sorted(DIVISIONS):
            yield case(op, [tensor_of(name, [1, 2]), zero], {}, BINARY[op])
            yield case(op, [tensor_of(name, [1, 2]), 0], {}, BINARY[op])


def in_place():
    ops = {"add_": torch.Tensor.add_, "div_": torch.Tensor.div_, "pow_": torch.Tensor.pow_, "bitwise_or_": torch.Tensor.bitwise_or_,
           "remainder_": torch.Tensor.remainder_}  # fmt: skip
    for (op, run), a_name, b_name in itertools.product(ops.items(), DTYPES, DTYPES):
        a, b = tensor_of(a_name, [1, 0, 5, 3]), tensor_of(b_name, [1, 3, 1, 2])
        yield case(op, [a, b], {}, run, rtol=op == "pow_")
    for (op, run), name, number in itertools.product(ops.items(), DTYPES, [2, 2.5]):
        yield case(op, [tensor_of(name, [1, 0, 5, 3]), number], {}, run, rtol=op == "pow_")
    for name in DTYPES:
        for op in ["neg_", "abs_", "sqrt_", "exp_", "relu_"]:
            yield case(op, [tensor_of(name, [1, 0, 3])], {}, getattr(torch, op), rtol=True)
    wide, long = torch.ones(2, 3), torch.ones(4, 2, 3)
    yield case("add_", [wide, long], {}, torch.Tensor.add_)
    yield case("add_", [long, wide], {}, torch.Tensor.add_)


def ternary():
    for name in DTYPES:
        a, b = pairs(name, "remainder")
        c = tensor_of(name, [rng.choice(a.tolist()) for _ in range(len(a))])
        condition = torch.arange(len(a)) % 3 == 0
        yield case("where", [condition, a, b], {}, torch.where)
        yield case("where", [condition, a, 2], {}, torch.where)
        yield case("where", [condition, a, 2.5], {}, torch.where)
        yield case("where", [condition.reshape(-1, 1)[:4], a[:3], b[:1]], {}, torch.where)
        yield case("clamp", [a, torch.minimum(b, c), torch.maximum(b, c)], {}, torch.clamp)
        yield case("clamp", [a, 1, 3], {}, torch.clamp)
        if name in FLOATS or name == "i64":
            yield case("clamp", [a, -1.5, 2.5], {}, torch.clamp)
        yield case("addcmul", [a, b, c], {"value": 2}, lambda a, b, c: torch.addcmul(a, b, c, value=2), rtol=True, atol=0)
        yield case("addcdiv", [a, b, c], {"value": 2}, lambda a, b, c: torch.addcdiv(a, b, c, value=2), rtol=True, atol=0)
        yield case("lerp", [a, b, c], {}, torch.lerp, rtol=roughness("lerp", name), atol=0)
        yield case("lerp", [a, b, 0.25], {}, torch.lerp, rtol=roughness("lerp", name), atol=0)
    for a_name, b_name in itertools.product(DTYPES, DTYPES):
        yield case("where", [torch.tensor([True, False]), tensor_of(a_name, [1, 0]), tensor_of(b_name, [0, 1])], {}, torch.where)


def shapes():
    for shape in [(0,), (0, 3), (), (1,), (5, 0)]:
        a = torch.ones(shape)
        yield case("exp", [a], {}, torch.exp, rtol=True)
        yield case("add", [a, a], {}, torch.add)
        yield case("lt", [a, torch.ones(1)], {}, torch.lt)
    base = torch.arange(120, dtype=torch.float32).reshape(2, 3, 4, 5)
    for a, b in [(base.permute(3, 1, 0, 2), base.permute(3, 1, 0, 2)), (base[:, :, ::2, 1:4], base[:1, :, 1:3, 2:]),
                 (base.transpose(0, 3), base[0, 0, 0].reshape(5, 1, 1, 1)), (base, base[:, :1, :, :1])]:  # fmt: skip
        yield case("sub", [a, b], {}, torch.sub)
        yield case("where", [a > b, a, b], {}, torch.where)
    yield case("add", [torch.ones(2), torch.ones(3)], {}, torch.add)


SHAPES = [((5,), []), ((3, 4), [0]), ((3, 4), [-1]), ((2, 3, 4), [0, 2]), ((2, 3, 4), [1]), ((), []), ((0, 3), [1]), ((40, 5), [0])]


def few(name, shape):
    count = math.prod(shape)
    if name in FLOATS:
        return tensor_of(name, [rng.gauss(0, 2) for _ in range(count)], shape)
    if name == "bool":
        return tensor_of(name, [rng.random() < 0.7 for _ in range(count)], shape)
    return tensor_of(name, [rng.randint(0, 9) for _ in range(count)], shape)


def reductions():
    ops = {
        "sum": lambda a, **k: torch.sum(a, **k), "mean": torch.mean, "amax": torch.amax, "amin": torch.amin, "any": torch.any,
        "all": torch.all, "var": torch.var, "stddev": torch.std, "logsumexp": torch.logsumexp,
    }  # fmt: skip
    for power in [0, 1, 2, 3.5, math.inf, -math.inf]:
        ops[f"norm {power}"] = lambda a, dim, keepdim, p=power: torch.linalg.vector_norm(a, p, dim, keepdim)
    for name, (op, run), (shape, dims) in itertools.product(DTYPES, ops.items(), SHAPES):
        a = few(name, shape)
        keepdim = rng.random() < 0.3
        whole = list(range(len(shape))) if not dims else dims
        op, _, power = op.partition(" ")
        arguments = {"dims": dims, "keepdim": keepdim}
        if power:
            arguments["power"] = power
        yield case(op, [a], arguments, lambda a: run(a, dim=whole, keepdim=keepdim), rtol=True, atol=4)
    for name, op, (shape, dims) in itertools.product(DTYPES, ["max", "min", "argmax", "argmin", "prod", "cumsum", "cumprod"], SHAPES):
        if len(dims) > 1 or (op in {"prod", "cumprod"} and shape == (40, 5)):
            continue
        a = few(name, shape)
        if name in FLOATS and shape == (3, 4):
            a[1, 2] = math.nan
        if dims:
            run = getattr(torch, op)
            yield case(op, [a], {"dim": dims[0]}, lambda a: run(a, dims[0]), rtol=True, atol=0)
            if op.startswith("cum"):
                turned = a.transpose(0, -1)
                yield case(op, [turned], {"dim": dims[0]}, lambda a: run(a, dims[0]), rtol=True, atol=0)
        elif not op.startswith("cum"):
            yield case(op, [a], {}, lambda a: getattr(torch, op)(a), rtol=True, atol=0)
    for op in ["logsumexp", "amax", "argmax", "var"]:
        a = tensor_of("f32", [math.inf, 1, -math.inf, -math.inf, -math.inf, math.inf, math.nan, 2], (4, 2))
        run = getattr(torch, op)
        yield case(op, [a], {"dim": 1} if op == "argmax" else {"dims": [1], "keepdim": False}, lambda a: run(a, 1), rtol=True)


def with_gradient(run, inputs, grad):
    """The outputs of a function, and the gradients of its inputs."""
    leaves = [x.detach().requires_grad_() for x in inputs]
    output = run(*leaves)
    return [output.detach(), *torch.autograd.grad(output, leaves, grad)]


def rows():
    for name in FLOATS:
        for shape, dim in [((5,), 0), ((3, 40), -1), ((3, 40), 0), ((2, 3, 17), 1), ((), 0), ((0, 3), 1)]:
            a, grad = few(name, shape), few(name, shape)
            for op, run in [("softmax", F.softmax), ("log_softmax", F.log_softmax)]:
                yield case(op, [a, grad], {"dim": dim}, lambda a, g: with_gradient(lambda a: run(a, dim), [a], g), rtol=True, atol=8)
                if len(shape) == 2:
                    turned = few(name, shape[::-1]).t()
                    yield case(op, [turned, grad], {"dim": dim}, lambda a, g: with_gradient(lambda a: run(a, dim), [a], g), rtol=True, atol=8)
        odd = tensor_of(name, [math.inf, 1, -math.inf, -math.inf, -math.inf, 3, math.nan, 2], (4, 2))
        for op, run in [("softmax", F.softmax), ("log_softmax", F.log_softmax)]:
            yield case(op, [odd, torch.zeros_like(odd)], {"dim": 1}, lambda a, g: with_gradient(lambda a: run(a, 1), [a], g), rtol=True, atol=1)
        for shape in [(4, 5), (3, 2, 37), (2, 64)]:
            a, grad, weight, bias = few(name, shape), few(name, shape), few(name, shape[-1:]), few(name, shape[-1:])
            yield case("layer_norm", [a, grad, weight, bias], {},
                       lambda a, g, w, b: with_gradient(lambda a, w, b: F.layer_norm(a, w.shape, w, b, 1e-5), [a, w, b], g), rtol=True, atol=64)
            yield case("rms_norm", [a, grad, weight], {},
                       lambda a, g, w: with_gradient(lambda a, w: F.rms_norm(a, w.shape, w, 1e-5), [a, w], g), rtol=True, atol=64)
        logits, target, grad = few(name, (6, 21)), torch.tensor([0, 20, 3, -100, 7, 7]), few(name, (6,))
        yield case("cross_entropy", [logits, target, grad], {},
                   lambda x, t, g: with_gradient(lambda x: F.cross_entropy(x, t, reduction="none"), [x], g), rtol=True, atol=8)
        yield case("cross_entropy", [logits, target + 5, grad], {},
                   lambda x, t, g: with_gradient(lambda x: F.cross_entropy(x, t, reduction="none"), [x], g))


def convolutions():
    for name in FLOATS:
        for input, weight, options in [
            ((3, 2, 5, 4), (3, 2, 3, 2), {"padding": [1, 0]}), ((2, 3, 7, 6), (4, 3, 2, 2), {"stride": [2, 1], "padding": [2, 1], "dilation": [2, 3]}),
            ((2, 4, 5, 5), (6, 2, 3, 3), {"stride": [3, 3], "padding": [1, 1], "groups": 2}), ((4, 3, 4, 3), (5, 3, 1, 1), {}),
            ((2, 6, 4, 4), (6, 1, 2, 2), {"groups": 6}), ((0, 2, 4, 4), (3, 2, 2, 2), {}), ((2, 3, 4, 4), (3, 2, 2, 2), {}),
            ((2, 2, 3, 3), (3, 2, 4, 4), {}), ((2, 2, 3, 3), (3, 2, 2, 2), {"stride": [0, 1]}),
        ]:  # fmt: skip
            a, w = few(name, input), few(name, weight)
            def run(a, w, options=options):
                return F.conv2d(a, w, **options)
            try:
                grad = few(name, run(a, w).shape)
            except RuntimeError:
                grad = few(name, (1,))
            yield case("conv2d", [a, w, grad], options, lambda a, w, g: with_gradient(run, [a, w], g), rtol=True, atol=64)


def later():
    """After all others, so that these draw the numbers that they always drew."""
    for name in DTYPES:
        for op, run in {"asinh": torch.asinh, "acosh": torch.acosh, "atanh": torch.atanh}.items():
            yield case(op, [values(name)], {}, run, rtol=True)
        a, b = pairs(name, "logaddexp")
        yield case("logaddexp", [a, b], {}, torch.logaddexp, rtol=True)


def picks():
    """Repeated positions only where PyTorch's order of additions does not matter: of small whole numbers."""
    for name in DTYPES:
        whole = name not in FLOATS
        a = few(name, (4, 5)) if not whole else tensor_of(name, [rng.randint(0, 9) for _ in range(20)], (4, 5))
        small = tensor_of(name, [rng.randint(0, 3) for _ in range(20)], (4, 5))
        positions = torch.tensor([[3, 0, 1, 1, 2], [0, 0, 3, 2, 2]])
        narrow = torch.tensor([[4, 0], [1, 1], [2, 3], [0, 0]])
        view = a.t()
        yield case("gather", [a, positions], {"dim": 0}, lambda a, i: torch.gather(a, 0, i))
        yield case("gather", [a, narrow], {"dim": -1}, lambda a, i: torch.gather(a, -1, i))
        yield case("gather", [view, positions.t()], {"dim": 1}, lambda a, i: torch.gather(a, 1, i))
        yield case("gather", [a, positions + 2], {"dim": 0}, lambda a, i: torch.gather(a, 0, i))
        yield case("gather", [a, positions[:, :, None]], {"dim": 0}, lambda a, i: torch.gather(a, 0, i))
        yield case("scatter_add", [small, positions, small[:2]], {"dim": 0}, lambda a, i, s: torch.scatter_add(a, 0, i, s))
        yield case("scatter_add", [small, narrow, small[:, :2]], {"dim": 1}, lambda a, i, s: torch.scatter_add(a, 1, i, s))
        once = torch.tensor([[2, 0, 1, 3, 0], [0, 3, 2, 1, 1]])
        yield case("scatter", [a, once, small[:2]], {"dim": 0}, lambda a, i, s: torch.scatter(a, 0, i, s))
        for dim, listed in itertools.product([0, 1, -1], [[3, 0, 0, 1], [], [2], [-1]]):
            i = torch.tensor(listed, dtype=torch.int64)
            yield case("index_select", [a, i], {"dim": dim}, lambda a, i, dim=dim: torch.index_select(a, dim, i))
            source = small.index_select(dim, i) if listed != [-1] else small
            yield case("index_add", [small, i, source], {"dim": dim}, lambda a, i, s, dim=dim: torch.index_add(a, dim, i, s))
        for dims in [[0], [1], [0, -1], []]:
            yield case("flip", [a], {"dims": dims}, lambda a, dims=dims: torch.flip(a, dims))
        for shifts, dims in [([2], [0]), ([-3], [1]), ([1, 7], [1, 0]), ([6], [])]:
            yield case("roll", [a], {"shifts": shifts, "dims": dims}, lambda a, s=shifts, d=dims: torch.roll(a, s, d))
        for diagonal in [0, 1, -2, 9, -9]:
            yield case("tril", [a], {"diagonal": diagonal}, lambda a, d=diagonal: torch.tril(a, d))
            yield case("triu", [view], {"diagonal": diagonal}, lambda a, d=diagonal: torch.triu(a, d))
        for pads in [[1, 2], [0, 0, 3, 1], [-1, -2], [2, -1, -3, 1], [-3, -3], [1], []]:
            yield case("pad", [a], {"pads": pads}, lambda a, p=pads: F.pad(a, p, value=1))
        ties = torch.cat([small, a])
        if name in FLOATS:
            ties[1, 2] = math.nan
        for dim, down in itertools.product([0, 1], [False, True]):
            arguments = {"dim": dim, "descending": down}
            yield case("sort", [ties], arguments, lambda a, dim=dim, down=down: torch.sort(a, dim=dim, descending=down, stable=True))
            first = lambda a, dim=dim, down=down: [x.narrow(dim, 0, 3) for x in torch.sort(a, dim=dim, descending=down, stable=True)]
            yield case("topk", [ties], {**arguments, "k": 3}, first)


def last():
    for name, (op, run) in itertools.product(DTYPES, {"mish": F.mish, "hardsigmoid": F.hardsigmoid}.items()):
        a = values(name)
        if name in FLOATS:
            a = torch.cat([a[a > -80], few(name, (20,))])  # PyTorch's mish is 0 where its vector exp underflows
        yield case(op, [a], {}, run, rtol=True, atol=8)
    weight = torch.tensor(0.25, dtype=torch.float64)
    for name, weights in itertools.product(FLOATS, [weight, weight.reshape(1)]):
        yield case("lerp", [tensor_of(name, [1, 2]), tensor_of(name, [3, -4]), weights], {}, torch.lerp)


def more_picks():
    for name in DTYPES:
        a = tensor_of(name, [rng.randint(0, 3) for _ in range(12)], (3, 4))
        view, positions = a.t(), torch.tensor([[2, 0], [1, 3]])
        for op, run in {"scatter": torch.scatter, "scatter_add": torch.scatter_add}.items():
            yield case(op, [view, positions, view], {"dim": 0}, lambda a, i, s, run=run: run(a, 0, i, s))
            yield case(op, [view, positions, view[:1]], {"dim": 0}, lambda a, i, s, run=run: run(a, 0, i, s))
        mask = torch.tensor([rng.random() < 0.5 for _ in range(12)]).reshape(4, 3)
        for m in [mask, mask[0], mask[:, :1], mask & False, a[0]]:
            yield case("masked_select", [view, m], {}, torch.masked_select)
        yield case("masked_select", [a[0, 0], mask], {}, torch.masked_select)
        yield case("one_hot", [a], {"count": 5}, lambda a: F.one_hot(a, 5))
    classes = torch.tensor([[0, 3], [1, 1], [2, 0]])
    for listed, count in [(classes, 4), (classes.t(), 6), (classes, 3), (classes - 1, 4), (classes[0, 1], 4), (classes[:0], 2)]:
        yield case("one_hot", [listed], {"count": count}, lambda a, count=count: F.one_hot(a, count))


def no_dims():
    for name, dim in itertools.product(["f32", "i64", "bool"], [0, -1, 1]):
        a, other = tensor_of(name, [1], ()), tensor_of(name, [3], ())
        in_dim = {"dim": dim}
        for op in ["cumsum", "cumprod", "prod", "argmax", "argmin", "max", "min"]:
            yield case(op, [a], in_dim, lambda a, run=getattr(torch, op): run(a, dim))
        for down in [False, True]:
            arguments = {"dim": dim, "descending": down}
            yield case("sort", [a], arguments, lambda a: torch.sort(a, dim=dim, descending=down, stable=True))
            # PyTorch refuses topk of bool.
            for k in [0, 1, 2] if name != "bool" else []:
                yield case("topk", [a], {**arguments, "k": k}, lambda a: torch.topk(a, k, dim, down))
        for listed in [0, [0], [0, 0], [], 1, [[0]]]:
            i = torch.tensor(listed, dtype=torch.int64)
            yield case("gather", [a, i], in_dim, lambda a, i: torch.gather(a, dim, i))
            yield case("index_select", [a, i], in_dim, lambda a, i: torch.index_select(a, dim, i))
            # Elsewhere PyTorch takes a tensor without dims for one of one dim.
            beside = other.expand(i.shape).clone()
            yield case("scatter", [a, i, beside], in_dim, lambda a, i, s: torch.scatter(a, dim, i, s))
            yield case("scatter_add", [a, i, beside], in_dim, lambda a, i, s: torch.scatter_add(a, dim, i, s))
            for source in [other, other.reshape(1)]:
                yield case("index_add", [a, i, source], in_dim, lambda a, i, s: torch.index_add(a, dim, i, s))
        yield case("flip", [a], {"dims": [dim]}, lambda a: torch.flip(a, [dim]))
        yield case("roll", [a], {"shifts": [2], "dims": [dim]}, lambda a: torch.roll(a, 2, dim))
    for name in ["f32", "i64", "bool"]:
        a = tensor_of(name, [1], ())
        yield case("flip", [a], {"dims": []}, lambda a: torch.flip(a, []))
        yield case("roll", [a], {"shifts": [2], "dims": []}, lambda a: torch.roll(a, 2))
        yield case("tril", [a], {"diagonal": 0}, torch.tril)
        yield case("triu", [a], {"diagonal": 0}, torch.triu)
        yield case("pad", [a], {"pads": []}, lambda a: F.pad(a, [], value=1))
        yield case("pad", [a], {"pads": [1, 1]}, lambda a: F.pad(a, [1, 1], value=1))
        for mask in [True, False, [True], [True, False]]:
            yield case("masked_select", [a, torch.tensor(mask)], {}, torch.masked_select)


def all_cases():
    generators = [unary(), binary(), in_place(), ternary(), shapes(), reductions(), rows(), picks(), later(), last(), more_picks()]
    return list(itertools.chain(*generators))


def write_short_integers(folder):
    assert torch.__version__.startswith("2.15"), torch.__version__
    added = {"i16": torch.int16, "i8": torch.int8}
    DTYPES.update(added)
    SHORT_NAMES.update({dtype: name for name, dtype in added.items()})
    INTEGERS.extend(added)
    cases = [c for c in all_cases() if any(t.get("dtype") in added for t in c["in"] + c.get("out", []))]
    write(f"{folder}/tensor_short_integers.jsonl.gz", cases)


def write_no_dims(folder):
    assert torch.__version__.startswith("2.15"), torch.__version__
    write(f"{folder}/tensor_no_dims.jsonl.gz", list(no_dims()))


def main(folder):
    assert torch.__version__.startswith("2.11"), torch.__version__
    write(f"{folder}/tensor_operators.jsonl.gz", all_cases())
    rng.seed(20261123)
    write(f"{folder}/tensor_convolutions.jsonl.gz", list(convolutions()))


if __name__ == "__main__":
    torch.set_num_threads(1)
    if "--short-integers" in sys.argv:
        write_short_integers(sys.argv[1])
    elif "--no-dims" in sys.argv:
        write_no_dims(sys.argv[1])
    else:
        main(sys.argv[1])
