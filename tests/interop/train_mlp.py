"""examples/train_mlp.cc in PyTorch: the same first weights, samples and steps."""
import sys

import numpy
import torch

HIDDEN, BATCH, TRAINED = 64, 96, 1440
data, epochs, rate = sys.argv[1], int(sys.argv[2]), 0.5


def spread(index):
    bits = (index.astype(numpy.uint64) + numpy.uint64(1)) * numpy.uint64(2654435761) % numpy.uint64(2**32)
    return bits.astype(numpy.float64) / 2147483648.0 - 1.0


def first_weights(shape, inputs, first):
    count = int(numpy.prod(shape))
    values = spread(numpy.arange(first, first + count)) * (1 / numpy.sqrt(inputs))
    return torch.tensor(values.reshape(shape), dtype=torch.float32).requires_grad_()


rows = numpy.loadtxt(data, delimiter=",")
pixels = torch.tensor(rows[:, :64] / 16, dtype=torch.float32)
digits = torch.tensor(rows[:, 64], dtype=torch.int64)
weights = [first_weights((HIDDEN, 64), 64, 0), first_weights((HIDDEN,), 64, 100_000),
           first_weights((10, HIDDEN), HIDDEN, 200_000), first_weights((10,), HIDDEN, 300_000)]


def logits(x):
    return torch.relu(x @ weights[0].t() + weights[1]) @ weights[2].t() + weights[3]


for epoch in range(1, epochs + 1):
    total = 0.0
    for first in range(0, TRAINED, BATCH):
        x, y = pixels[first:first + BATCH], digits[first:first + BATCH]
        loss = torch.nn.functional.cross_entropy(logits(x), y)
        loss.backward()
        with torch.no_grad():
            for weight in weights:
                weight -= rate * weight.grad
                weight.grad = None
        total += loss.item() / (TRAINED // BATCH)
    accuracy = (logits(pixels[TRAINED:]).argmax(1) == digits[TRAINED:]).double().mean().item()
    print(f"epoch {epoch:2}  loss {total:.6f}  accuracy {accuracy:.4f}")
print(f"loss: {total:.6f}")
