"""Writes tensor_samples.jsonl.gz: what PyTorch 2.15 computes on a CPU for each call of tests/dtensor/operator_samples.cc, for every dtype.

    PYTHON_WITH_TORCH tests/vectors/make_sample_goldens.py tests/vectors

A case is {"op": the sample's name, "dtype": that of the inputs that stand for any, "in": [tensor, ...], "out": tensor} or "error": true
where PyTorch refuses. Where the result has a gradient: "grad", what comes in, and "grads", that of each input, null where it has none.
Elements are demanded to the bit, nan of any kind for nan, or, where the case has "rtol", within it of themselves and of the greatest one.
"""

import math
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
# PyTorch passes the gradient on as if nothing had been written; it is 0.
GRADIENT_IS_WRONG = {"logical_and_", "logical_or_", "logical_xor_", "logical_not_"}


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
        return tensor_of(name, [draw() for _ in range(count)], self.shape)


def away_from_zero():
    x = rng.gauss(0, 1)
    return x + math.copysign(0.25, x)


def made(*shape):
    return Any(shape or WHOLE, away_from_zero, lambda: rng.randint(0, 9))


def between(low, high, *shape):
    return Any(shape or WHOLE, lambda: rng.uniform(low, high), lambda: rng.randint(math.floor(low), math.floor(high)))


def whole(*shape):
    return Any(shape or WHOLE, lambda: float(rng.randint(1, 8)), lambda: rng.randint(1, 8))


def numbers(below, *shape):
    return torch.tensor([rng.randrange(below) for _ in range(math.prod(shape))]).reshape(shape)


def mask():
    return torch.tensor([rng.random() < 0.5 for _ in range(ROWS * COLUMNS)]).reshape(WHOLE)


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
    for name in ["add", "sub", "mul", "div", "pow", "remainder", "fmod"]:
        add(f"{name} (number)", [whole()], lambda a, run=getattr(torch, name): run(a, 3))
    add("addcmul", [made(), made(), made()], lambda a, b, c: torch.addcmul(a, b, c, value=2))
    add("addcdiv", [made(), made(), whole()], lambda a, b, c: torch.addcdiv(a, b, c, value=2))
    add("lerp", [made(), made(), made()], torch.lerp)
    add("lerp (number)", [made(), made()], lambda a, b: torch.lerp(a, b, 0.25))
    add_all("bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift", [between(0, 7), between(0, 7)], exact=True)
    add("bitwise_not", [between(0, 7)], torch.bitwise_not, exact=True)
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
    add("clamp of tensors", [made(), made(), made()], lambda a, b, c: torch.clamp(a, b, c + 1), exact=True)
    add_all("zeros_like ones_like clone", [made()], exact=True)
    add("full_like", [made()], lambda a: torch.full_like(a, 2), exact=True)
    add("to", [made()], lambda a: a.to(torch.float32), exact=True)


def comparisons():
    add_all("eq ne lt le gt ge logical_and logical_or logical_xor", [whole(), whole()], exact=True)
    add_all("logical_not isnan isinf isfinite", [whole()], exact=True)
    add("where", [mask(), whole(), whole()], torch.where, exact=True)
    add("masked_fill", [whole(), mask()], lambda a, m: a.masked_fill(m, 1), exact=True)


def reductions():
    for name in ["sum", "mean", "any", "all", "amax", "amin", "logsumexp", "prod", "argmax", "argmin", "var", "cumsum", "cumprod"]:
        add(name, [made()], lambda a, run=getattr(torch, name): run(a, 0))
    add("max", [made()], lambda a: torch.max(a, 0).values, exact=True)
    add("min", [made()], lambda a: torch.min(a, 0).values, exact=True)
    add("stddev", [made()], lambda a: torch.std(a, 0))
    add("norm", [made()], lambda a: torch.linalg.vector_norm(a, 2, 0))


def rows():
    add("softmax", [made()], lambda a: F.softmax(a, 1))
    add("log_softmax", [made()], lambda a: F.log_softmax(a, 1))
    add("layer_norm", [made(), made(COLUMNS), made(COLUMNS)], lambda a, w, b: F.layer_norm(a, (COLUMNS,), w, b))
    add("rms_norm", [made(), made(COLUMNS)], lambda a, w: F.rms_norm(a, (COLUMNS,), w))
    classes = numbers(COLUMNS, ROWS)
    add("cross_entropy", [made(), classes], F.cross_entropy)
    add("nll_loss", [made(), classes], F.nll_loss)
    add("mse_loss", [made(), made()], F.mse_loss)


def products():
    a, b = made(), made(COLUMNS, ROWS)
    add_all("matmul mm", [a, b])
    add("mv", [a, made(COLUMNS)], torch.mv)
    add("dot", [made(COLUMNS), made(COLUMNS)], torch.dot)
    add("bmm", [made(2, ROWS, COLUMNS), made(2, COLUMNS, ROWS)], torch.bmm)
    add("addmm", [made(ROWS), a, b], torch.addmm)
    add("baddbmm", [made(2, ROWS, ROWS), made(2, ROWS, COLUMNS), made(2, COLUMNS, ROWS)], torch.baddbmm)
    add("linear", [a, made(), made(ROWS)], F.linear)
    add("einsum ij,jk->ik", [a, b], lambda a, b: torch.einsum("ij,jk->ik", a, b))


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
        ("split", [made()], lambda a: a.split(1)[1]), ("chunk", [made()], lambda a: a.chunk(2)[1]), ("unbind", [made()], lambda a: a.unbind()[1]),
    ]:  # fmt: skip
        add(name, inputs, run, exact=name != "expand")  # its gradient is a sum


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
    add("conv2d", [made(2, 2, ROWS, COLUMNS), made(4, 2, 2, 2), made(4)], F.conv2d)


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
    for name in ["add_", "sub_", "mul_", "div_", "pow_"]:
        add(f"{name} (number)", [whole()], in_place_form(name, 3))
    add("add_, times", [made(), made()], in_place_form("add_", alpha=2))
    add("sub_, times", [made(), made()], in_place_form("sub_", alpha=2))
    add("addcmul_", [made(), made(), made()], in_place_form("addcmul_", value=2))
    add("addcdiv_", [made(), made(), whole()], in_place_form("addcdiv_", value=2))
    add("lerp_ (number)", [made(), made()], in_place_form("lerp_", 0.25))
    add("fill_", [made()], in_place_form("fill_", 2))
    add("clamp_", [made()], in_place_form("clamp_", -0.5, 0.5))
    add("masked_fill_", [made(), mask()], in_place_form("masked_fill_", 1))


def case(op, dtype, inputs, run):
    described = {"op": op, "dtype": dtype, "in": [describe(x) for x in inputs]}
    leaves = [x.clone().requires_grad_(x.is_floating_point()) for x in inputs]
    try:
        result = run(*leaves)
        described["out"] = describe(result.detach().contiguous())
    except (RuntimeError, TypeError, IndexError, ZeroDivisionError, ValueError, NotImplementedError):
        return {**described, "error": True}
    if op not in EXACT and result.is_floating_point():
        described["rtol"] = max(TOLERANCE[dtype if dtype in FLOATS else SHORT_NAMES[result.dtype]], IMPRECISE.get(op, 0))
    if result.requires_grad and op not in GRADIENT_IS_WRONG:
        name = SHORT_NAMES[result.dtype]
        grad = tensor_of(name, [rng.gauss(0, 1) for _ in range(result.numel())], result.shape)
        wanted = [x for x in leaves if x.requires_grad]
        try:
            found = iter(torch.autograd.grad(result, wanted, grad, allow_unused=True))
        except RuntimeError as error:
            assert "is not implemented" in str(error), (op, error)
            return described
        grads = [next(found) if x.requires_grad else None for x in leaves]
        described["grad"] = describe(grad)
        described["grads"] = [None if g is None else describe(g.contiguous()) for g in grads]
    return described


def all_cases():
    for family in [arithmetic, functions, comparisons, reductions, rows, products, views, places, networks, in_place]:
        family()
    for name, (inputs, run) in SAMPLES.items():
        cases = [case(name, dtype, [x.made(dtype) if isinstance(x, Any) else x for x in inputs], run) for dtype in DTYPES]
        assert any("out" in c for c in cases), name
        yield from cases


if __name__ == "__main__":
    assert torch.__version__.startswith("2.15"), torch.__version__
    torch.set_num_threads(1)
    DTYPES.update({"i16": torch.int16, "i8": torch.int8})
    SHORT_NAMES.update({dtype: name for name, dtype in DTYPES.items()})
    write(f"{sys.argv[1]}/tensor_samples.jsonl.gz", list(all_cases()))
