#!/usr/bin/env python3
"""first_step.py FOLDER PYTHON [--ranks 4] [--runs 5]: from a launcher's start to the line of a training's first step.

FOLDER has dtrun and train_gpt; PYTHON is one with PyTorch and safetensors. train_gpt under dtrun and its PyTorch twin
(tests/interop/train_gpt.py, DistributedDataParallel over gloo) under torchrun take turns: the same first weights, samples and
ranks, a thread a rank. Told are medians in ms, the least in brackets, and the median of PyTorch over that of dtrun. The first
losses have to agree. train_gpt also computes the loss of validation before its line.
"""
import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

TWIN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "interop", "train_gpt.py")
DATA = "/usr/share/common-licenses/GPL-3"
SIZES = {"--batch": 16, "--context": 64, "--width": 64, "--layers": 2, "--heads": 4}


def first_step(command, pattern):
    """Milliseconds, and the loss that the line tells."""
    began = time.perf_counter()
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as job:
        loss = None
        for line in job.stdout:
            found = re.match(pattern, line)
            if found and loss is None:
                took, loss = (time.perf_counter() - began) * 1e3, float(found.group(1))
        errors = job.stderr.read()
    if loss is None:
        sys.exit("%s ended with %d and no first step:\n%s" % (" ".join(command), job.returncode, errors))
    if job.returncode != 0:  # PyTorch 2.15's gloo now and then aborts when its process group is destroyed
        print("after its first step %s ended with %d" % (os.path.basename(command[0]), job.returncode), file=sys.stderr)
    return took, loss


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("python")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    dtrun, train_gpt = (os.path.join(options.folder, name) for name in ("dtrun", "train_gpt"))
    sizes = [str(word) for pair in SIZES.items() for word in pair]
    with tempfile.TemporaryDirectory() as folder:
        weights = os.path.join(folder, "first.safetensors")
        subprocess.run([dtrun, train_gpt, "--steps", "1", "--sample", "0", "--first-weights", weights, *sizes], check=True,
                       stdout=subprocess.DEVNULL)
        ranks = "--nproc_per_node=%d" % options.ranks
        ways = {
            "dtrun": ([dtrun, ranks, train_gpt, "--mesh", "dp=%d" % options.ranks, "--steps", "1", "--every", "1", "--sample", "0",
                       "--data", DATA, *sizes], r"step +1 +loss ([0-9.]+)"),
            "torchrun": ([options.python, "-m", "torch.distributed.run", "--standalone", ranks, TWIN, "--data", DATA, "--weights",
                          weights, "--steps", "1", *sizes], r"1,([0-9.]+)"),
        }
        times, losses = {name: [] for name in ways}, {}
        for run in range(-1, options.runs):  # one to warm up
            for name, (command, pattern) in ways.items():
                took, losses[name] = first_step(command, pattern)
                if run >= 0:
                    times[name].append(took)
    if abs(losses["dtrun"] - losses["torchrun"]) > 2e-4:
        sys.exit("the first losses differ: %s" % losses)
    medians = {name: statistics.median(found) for name, found in times.items()}
    for name, found in times.items():
        print("%-9s %9.1f ms (%.1f)" % (name, medians[name], min(found)))
    print("%.1fx; load %.1f" % (medians["torchrun"] / medians["dtrun"], os.getloadavg()[0]))


if __name__ == "__main__":
    main()
