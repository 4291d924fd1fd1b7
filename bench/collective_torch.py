"""collective_torch.py [--bound|--unbound] {OPERATION BYTES SAMPLES}...: one rank of collective_bench: PyTorch over gloo, started by dtrun. Measures as
collective_contender.h does: buffers are written before each call, all ranks meet, the slowest rank's time counts, and every
result is checked. Rank 0 prints the same lines: operation, bytes, then the least time, the median and the 99th percentile in
microseconds, and 0 for the bound; of what gloo does not have "absent OPERATION REASON"."""
import math
import os
import sys
import time

import torch
import torch.distributed as dist

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
ROOT = 0
PERIOD = 1021  # a prime: no part begins where another one does in the pattern
# Which buffers are a list with a part for each rank, and which have one part.
PARTS_IN = {"reduce_scatter", "all_to_all", "scatter"}
PARTS_OUT = {"all_gather", "all_to_all", "gather"}


def row(rank, count):
    """What a rank gives: small whole numbers, whose sums are exact."""
    return ((torch.arange(count) * 7 + rank * 13) % PERIOD % 101).to(torch.float32)


class Call:
    """Rows are made once, longer than a buffer by the places at which the calls begin in turn."""

    SHIFTS = 5

    def __init__(self, operation, size):
        self.operation = operation
        has_parts = operation in PARTS_IN | PARTS_OUT
        self.count = max(size // 4 // (SIZE if has_parts else 1), 1)
        self.whole = self.count * SIZE if has_parts else self.count
        in_place = operation in ("all_reduce", "reduce", "broadcast")
        gives = operation != "scatter" or RANK == ROOT
        gets = operation != "gather" or RANK == ROOT
        inputs = (self.whole if operation in PARTS_IN else self.count) if gives else 0
        outputs = (self.whole if operation in PARTS_OUT else self.count) if gets else 0
        self.input = torch.zeros(inputs)
        self.output = self.input if in_place else torch.zeros(outputs)
        longest = self.whole if operation in PARTS_IN else self.count
        self.rows = [row(rank, longest + self.SHIFTS) for rank in range(SIZE)]
        self.all = sum(self.rows) if operation in ("all_reduce", "reduce", "reduce_scatter") else None
        self.shift = 0

    def fill(self):
        self.shift = (self.shift + 1) % self.SHIFTS
        self.input.copy_(self.rows[RANK][self.shift:self.shift + self.input.numel()])
        if self.output is not self.input:
            self.output.fill_(-1)

    def parts(self, buffer):
        return list(buffer.split(self.count)) if buffer.numel() else None

    def run(self):
        match self.operation:
            case "all_reduce":
                dist.all_reduce(self.input)
            case "reduce":
                dist.reduce(self.input, ROOT)
            case "broadcast":
                dist.broadcast(self.input, ROOT)
            case "all_gather":
                dist.all_gather_into_tensor(self.output, self.input)
            case "reduce_scatter":
                dist.reduce_scatter_tensor(self.output, self.input)
            case "all_to_all":
                dist.all_to_all_single(self.output, self.input)
            case "gather":
                dist.gather(self.input, self.parts(self.output), ROOT)
            case "scatter":
                dist.scatter(self.output, self.parts(self.input), ROOT)
            case "barrier":
                dist.barrier()
            case "send_recv":
                work = dist.irecv(self.output, (RANK - 1) % SIZE)
                dist.send(self.input, (RANK + 1) % SIZE)
                work.wait()
            case _:
                raise NotImplementedError(f"{self.operation} is unknown here")

    def expected(self):
        """None: what the output holds is left open."""
        def given(rank, begin=0):
            return self.rows[rank][self.shift + begin:self.shift + begin + self.count]

        match self.operation:
            case "all_reduce":
                return self.all[self.shift:self.shift + self.count]
            case "reduce":
                return self.all[self.shift:self.shift + self.count] if RANK == ROOT else None
            case "broadcast":
                return given(ROOT)
            case "all_gather":
                return torch.cat([given(rank) for rank in range(SIZE)])
            case "gather":
                return torch.cat([given(rank) for rank in range(SIZE)]) if RANK == ROOT else None
            case "reduce_scatter":
                begin = self.shift + RANK * self.count
                return self.all[begin:begin + self.count]
            case "all_to_all":
                return torch.cat([given(rank, RANK * self.count) for rank in range(SIZE)])
            case "scatter":
                return given(ROOT, RANK * self.count)
            case "send_recv":
                return given((RANK - 1) % SIZE)
        return None


def sample(call):
    """Microseconds on this rank."""
    call.fill()
    dist.barrier()
    start = time.perf_counter()
    call.run()
    took = (time.perf_counter() - start) * 1e6
    expected = call.expected() if call.operation != "barrier" else None
    if expected is not None and not torch.equal(call.output, expected):
        sys.exit(f"{call.operation} of {call.whole * 4} bytes: the result is wrong on rank {RANK}")
    return took


def slowest(times):
    gathered = [torch.zeros(len(times), dtype=torch.float64) for _ in range(SIZE)]
    dist.all_gather(gathered, torch.tensor(times, dtype=torch.float64))
    return sorted(torch.stack(gathered).max(0).values.tolist())


def percentile(values, part):
    return values[max(math.ceil(part * len(values)), 1) - 1]


def main():
    # The network of the other contenders: the loopback, or between the lab's hosts.
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "eth0" if int(os.environ.get("GROUP_WORLD_SIZE", 1)) > 1 else "lo")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    # As the others, after the library has started its threads.
    words = sys.argv[1:]
    binding = words.pop(0) if words and words[0].startswith("--") else None
    if binding == "--bound" or binding is None and SIZE <= os.cpu_count():
        os.sched_setaffinity(0, {RANK % os.cpu_count()})
    for operation, size, samples in zip(words[0::3], map(int, words[1::3]), map(int, words[2::3])):
        call = Call(operation, size)
        try:
            for _ in range(samples // 10 + 2):
                sample(call)
        except (NotImplementedError, RuntimeError) as error:
            if RANK == 0:
                print("absent", operation, str(error).splitlines()[0], flush=True)
            continue
        times = slowest([sample(call) for _ in range(samples)])
        if RANK == 0:
            print(operation, size, times[0], percentile(times, 0.5), percentile(times, 0.99), 0, flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
