"""torch.multiprocessing.spawn for spawn_bench: a start method per line in, milliseconds out."""
import sys
import time

import torch.multiprocessing as mp


def do_nothing(rank):
    pass


if __name__ == "__main__":
    for line in sys.stdin:
        begin = time.perf_counter()
        mp.start_processes(do_nothing, nprocs=4, start_method=line.strip())
        print((time.perf_counter() - begin) * 1000, flush=True)
