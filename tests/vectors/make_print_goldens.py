"""Writes tensor_prints.jsonl.gz and tensor_ops.jsonl.gz: what PyTorch 2.11 and 2.15, which agree, print and compute on a CPU.

    PYTHON_WITH_TORCH tests/vectors/make_print_goldens.py tests/vectors

PYTHON_WITH_TORCH is the interpreter in the folder that tests/lab's torch-up prints. The same PyTorch
gives the same bytes.

A tensor is {"dtype", "shape", "strides", "offset", "storage"}; storage is the raw little-endian bytes
in hexadecimal. A print is a tensor with "text", and "device_text", as it prints on "device". An operation is {"op", "a", "b"?, ...arguments} with
"result", a tensor, or "error", true where PyTorch refuses. A number in place of a tensor is
{"number"}. Results are demanded to the bit (NaN of any kind for NaN), or, where the operation has
"tolerance", to that relative error, because the order of additions is free.
"""

import gzip
import itertools
import json
import math
import random
import sys

import torch

DTYPES = {
    "f64": torch.float64,
    "f32": torch.float32,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "i64": torch.int64,
    "i32": torch.int32,
    "u8": torch.uint8,
    "bool": torch.bool,
}
SHORT_NAMES = {dtype: name for name, dtype in DTYPES.items()}
FLOATS = ["f64", "f32", "f16", "bf16"]
INTEGERS = ["i64", "i32", "u8"]

rng = random.Random(20261121)


def describe(tensor):
    whole = tensor.as_strided((tensor.untyped_storage().nbytes() // tensor.element_size(),), (1,), 0)
    return {
        "dtype": SHORT_NAMES[tensor.dtype],
        "shape": list(tensor.shape),
        "strides": list(tensor.stride()),
        "offset": tensor.storage_offset(),
        "storage": bytes(whole.contiguous().view(torch.uint8).tolist()).hex(),
    }


def write(path, cases):
    text = "".join(json.dumps(case, separators=(",", ":")) + "\n" for case in cases)
    with open(path, "wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as packed:
        packed.write(text.encode())
    print(f"{path}: {len(cases)} cases, {len(text)} bytes unpacked")


# Prints

SMALL_SHAPES = [
    (), (1,), (2,), (3,), (7,), (13,), (26,), (40,), (1, 1), (2, 3), (3, 5), (5, 1), (4, 20), (1, 30),
    (2, 2, 3), (1, 1, 4), (2, 1, 9), (3, 2, 12), (2, 1, 2, 3), (1, 2, 3, 2), (2, 2, 1, 11),
]  # fmt: skip
EMPTY_SHAPES = [(0,), (0, 3), (3, 0), (2, 0, 4), (0, 0, 0, 0)]
LARGE_SHAPES = [
    (1000,), (1001,), (1100,), (25, 40), (40, 30), (7, 150), (5, 300), (400, 3), (11, 10, 10), (2, 600),
    (6, 200), (3, 4, 100), (8, 8, 20), (3, 3, 3, 40), (10, 2, 8, 8), (2, 8, 9, 9), (1, 1, 1, 1001),
]  # fmt: skip


def sometimes(plain, *rare):
    return lambda: rng.choice(rare) if rng.random() < 0.3 else plain()


FLOAT_KINDS = {
    "normal": lambda: rng.gauss(0, 1),
    "positive": lambda: rng.random(),
    "whole": lambda: float(rng.randint(-20, 20)),
    "whole and specials": sometimes(lambda: float(rng.randint(-9, 9)), math.inf, -math.inf, math.nan, -0.0),
    "whole of two sizes": lambda: float(rng.choice([1, -2, 2000, 30000])),
    "whole at the edge of 1000": lambda: float(rng.choice([1, 1000, -1000])),
    "large whole": lambda: float(rng.choice([1e8, 99999999, 12345678, 1e8 - 16])),
    "too large": lambda: rng.choice([1e8 + 64, 3e9, -2.5e20]),
    "mixed magnitudes": lambda: rng.gauss(0, 1) * 10.0 ** rng.randint(-8, 8),
    "slightly mixed": lambda: rng.gauss(0, 1) * 10.0 ** rng.randint(-1, 1),
    "tiny": lambda: rng.gauss(0, 1) * 1e-6,
    "at the edge of 1e-4": lambda: rng.choice([1e-4, 0.00010001, 9.9999e-5, 0.01]),
    "hundreds": lambda: rng.uniform(-999, 999),
    "normal and specials": sometimes(lambda: rng.gauss(0, 3), math.nan, math.inf, -math.inf, 0.0, -0.0),
    "tiny and specials": sometimes(lambda: rng.gauss(0, 1) * 1e-7, math.nan, math.inf, -math.inf, -0.0),
    "zeros": lambda: rng.choice([0.0, -0.0]),
    "no numbers": lambda: rng.choice([math.nan, math.inf, -math.inf, 0.0]),
    "ties": lambda: rng.choice([0.00005, 0.00015, 0.03125, 0.00390625, 1.00025, 2.5, 0.5, 1.5]),
    "edges of the type": lambda: rng.choice([5e-324, 1e-45, 6e-8, 1.8e308, 3.4e38, 65504.0, 1e-310, 2e-39]),
    "thousandths": lambda: rng.randint(-999, 999) / 1000,
}
INTEGER_KINDS = {
    "digits": lambda: rng.randint(0, 9),
    "bytes": lambda: rng.randint(0, 255),
    "signed": lambda: rng.randint(-128, 127),
    "wide": lambda: rng.randint(-(2**31), 2**31 - 1),
    "edges": lambda: rng.choice([-(2**63), 2**63 - 1, 2**31 - 1, -(2**31), 0, 1, 255]),
    "mixed": lambda: rng.randint(-1, 1) * 10 ** rng.randint(0, 9),
}


def make(name, shape, draw):
    values = [draw() for _ in range(math.prod(shape))]
    if name in FLOATS:
        return torch.tensor(values, dtype=torch.float64).to(DTYPES[name]).reshape(shape)
    if name == "bool":
        return torch.tensor(values, dtype=torch.bool).reshape(shape)
    return torch.tensor(values, dtype=torch.int64).to(DTYPES[name]).reshape(shape)


def kinds_of(name):
    if name in FLOATS:
        return FLOAT_KINDS
    if name == "bool":
        return {"any": lambda: rng.random() < 0.5, "true": lambda: True, "false": lambda: False}
    return INTEGER_KINDS


def prints():
    for name in DTYPES:
        kinds = list(kinds_of(name).values())
        shapes = itertools.cycle(SMALL_SHAPES)
        for draw in kinds:
            for _ in range(7):
                yield make(name, next(shapes), draw)
        for shape in SMALL_SHAPES:
            yield make(name, shape, kinds[0])
        for shape in EMPTY_SHAPES:
            yield make(name, shape, kinds[0])
        for index, shape in enumerate(LARGE_SHAPES):
            if index % 3 == list(DTYPES).index(name) % 3 or name == "f32":
                yield make(name, shape, kinds[index % len(kinds)])
    # Only what is shown decides the format.
    hidden = torch.ones(2000)
    hidden[1000] = 1e-6
    yield hidden
    yield torch.arange(24.0).reshape(4, 6).t()
    yield torch.arange(4000).reshape(50, 80).t()[::2]
    yield torch.tensor([1.5, 2.5]).expand(3, 2)


def text_on(tensor, device):
    """As PyTorch prints it on a CUDA device: its own code, on a CPU tensor that says it were there."""
    add_suffixes = torch._tensor_str._add_suffixes
    default_device = torch._C._get_default_device

    def with_device(text, suffixes, indent, force_newline):
        return add_suffixes(text, [s.replace("'cpu'", f"'{device}'") for s in suffixes], indent, force_newline)

    torch._tensor_str._add_suffixes = with_device
    torch._C._get_default_device = lambda: "cuda"
    try:
        return str(tensor)
    finally:
        torch._tensor_str._add_suffixes = add_suffixes
        torch._C._get_default_device = default_device


def print_case(index, tensor):
    device = ["cuda:0", "cuda:1", "cuda:12"][index % 3]
    return {**describe(tensor), "text": str(tensor), "device": device, "device_text": text_on(tensor, device)}


# Operations

BINARY = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
}


def case(op, result, **arguments):
    described = {
        key: describe(value) if isinstance(value, torch.Tensor) else value for key, value in arguments.items()
    }
    try:
        outcome = {"result": describe(result().contiguous())}
    except RuntimeError:
        outcome = {"error": True}
    return {"op": op, **described, **outcome}


def values_for(name):
    if name in FLOATS:
        return sometimes(lambda: rng.gauss(0, 50), 0.0, -0.0, math.inf, math.nan, 1e-6, 65504.0)
    if name == "bool":
        return lambda: rng.random() < 0.5
    return sometimes(lambda: rng.randint(-100, 100), 0, 255, 2**31 - 1, -(2**31))


def small_whole(name):
    return lambda: rng.random() < 0.5 if name == "bool" else rng.randint(0, 6 if name == "u8" else 9)


def promotions():
    shapes = [((2, 3), (2, 3)), ((4,), (3, 1)), ((2, 1, 3), (4, 1)), ((3,), (1,)), ((0, 3), (1, 3)), ((1,), (0,))]
    pairs = itertools.cycle(shapes)
    for (op, run), a_name, b_name in itertools.product(BINARY.items(), DTYPES, DTYPES):
        a_shape, b_shape = next(pairs)
        a, b = make(a_name, a_shape, values_for(a_name)), make(b_name, b_shape, values_for(b_name))
        yield case(op, lambda: run(a, b), a=a, b=b)
    for op, a_name, b_name in itertools.product(["mul", "div"], DTYPES, DTYPES):
        a, b = make(a_name, (5,), values_for(a_name)), make(b_name, (), values_for(b_name))
        run = BINARY[op]
        yield case(op, lambda: run(a, b), a=a, b=b)
        yield case(op, lambda: run(b, a), a=b, b=a)
        yield case(op, lambda: run(b, b), a=b, b=b)


def with_numbers():
    for (op, run), name, number in itertools.product(BINARY.items(), DTYPES, [2, 2.5, -3, 0.1, 1000.0001]):
        a = make(name, rng.choice([(7,), (2, 3), ()]), values_for(name))
        yield case(op, lambda: run(a, number), a=a, b={"number": number})
        yield case(op, lambda: run(number, a), a={"number": number}, b=a)


def strided():
    for (op, run), name in itertools.product(BINARY.items(), ["f32", "bf16", "i32", "f64"]):
        base = make(name, (6, 5, 4), values_for(name))
        views = [base[1:5:2, :, 1:3], base[:2, :, :2].transpose(1, 2), base[0, :, 2:].unsqueeze(0)]
        views[1] = views[1].transpose(1, 2)
        for a, b in itertools.permutations(views, 2):
            yield case(op, lambda: run(a, b), a=a, b=b)


def conversions():
    for a_name, b_name in itertools.product(DTYPES, DTYPES):
        whole = make(a_name, (9,), small_whole(a_name))
        yield case("to", lambda: whole.to(DTYPES[b_name]), a=whole, dtype=b_name)
    for a_name, b_name in itertools.product(["f64", "f32"], ["f16", "bf16", "f32"]):
        values = [rng.gauss(0, 1) * 2.0 ** rng.randint(-160, 160) for _ in range(200)]
        values += [rng.gauss(0, 1) * 2.0 ** rng.randint(-26, 17) for _ in range(200)]
        values += [math.inf, -math.inf, math.nan, 65519.99, 65520.0, 2.0**-25, 2.0**-25 * 1.001, 3.4e38]
        a = torch.tensor(values, dtype=torch.float64).to(DTYPES[a_name])
        yield case("to", lambda: a.to(DTYPES[b_name]), a=a, dtype=b_name)


def sums():
    shapes = [((), []), ((5,), []), ((3, 4), [0]), ((3, 4), [-1]), ((2, 3, 4), [0, 2]), ((2, 3, 4), [1]), ((2, 3, 4), []),
              ((0,), []), ((0, 3), [0]), ((0, 3), [1]), ((40, 60), []), ((40, 60), [0])]  # fmt: skip
    for name, (shape, dims), keepdim in itertools.product(DTYPES, shapes, [False, True]):
        a = make(name, shape, small_whole(name))
        if len(shape) == 2 and keepdim:
            a = a.t().contiguous().t()
        yield case("sum", lambda: a.sum(dims, keepdim), a=a, dims=dims, keepdim=keepdim, tolerance=0)
    for name, tolerance in [("f64", 1e-13), ("f32", 1e-5), ("f16", 1e-3), ("bf16", 8e-3)]:
        a = make(name, (3, 3000), rng.random)
        yield case("sum", lambda: a.sum([1]), a=a, dims=[1], keepdim=False, tolerance=tolerance)
    wide = torch.full((300,), 2**31 - 1, dtype=torch.int32)
    yield case("sum", lambda: wide.sum(), a=wide, dims=[], keepdim=False, tolerance=0)


MATMUL_SHAPES = [
    ((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 2)), ((2, 3), (3, 4)), ((1, 1), (1, 1)), ((5, 1), (1, 6)),
    ((2, 2, 3), (3, 4)), ((2, 2, 3), (2, 3, 4)), ((2, 1, 2, 3), (3, 3, 2)), ((3,), (2, 3, 4)), ((2, 4, 3), (3,)),
    ((0, 3), (3, 4)), ((2, 0), (0, 4)), ((2, 3), (3, 0)), ((0,), (0,)), ((0, 2, 3), (3, 2)), ((2, 3), (4, 2)),
    ((2, 3, 4), (3, 4, 5)), ((17, 70), (70, 9)),
]  # fmt: skip


def matmuls():
    for name, (a_shape, b_shape) in itertools.product(FLOATS + INTEGERS, MATMUL_SHAPES):
        a, b = make(name, a_shape, small_whole(name)), make(name, b_shape, small_whole(name))
        yield case("matmul", lambda: a @ b, a=a, b=b, tolerance=0)
    for name, tolerance in [("f64", 1e-13), ("f32", 1e-5), ("f16", 2e-3), ("bf16", 1.6e-2), ("i32", 0), ("u8", 0)]:
        draw = rng.random if name in FLOATS else small_whole(name)
        base = make(name, (4, 6, 8), draw)
        for a, b in [(base[0], base[1].t()), (base[0].t(), base[1]), (base[:, ::2, ::2], base[:, 1:5, 1:4]),
                     (base.transpose(1, 2), base), (base[0, :, 1], base[1]), (base[:, :, 3], base[0, :4])]:  # fmt: skip
            yield case("matmul", lambda: a @ b, a=a, b=b, tolerance=tolerance)
    a, b = torch.ones(2, 2), torch.ones(2, 2, dtype=torch.float64)
    yield case("matmul", lambda: a @ b, a=a, b=b, tolerance=0)


def main(folder):
    assert torch.__version__.startswith(("2.11", "2.15")), torch.__version__
    write(f"{folder}/tensor_prints.jsonl.gz", [print_case(i, t) for i, t in enumerate(prints())])
    generators = [promotions(), with_numbers(), strided(), conversions(), sums(), matmuls()]
    write(f"{folder}/tensor_ops.jsonl.gz", list(itertools.chain(*generators)))


if __name__ == "__main__":
    main(sys.argv[1])
