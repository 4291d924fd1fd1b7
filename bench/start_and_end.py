#!/usr/bin/env python3
"""start_and_end.py DTRUN [RANKS...] [--runs N] [--peer NAME=COMMAND]...: how long `true` takes, from a launcher's start to its end.

RANKS: 1 4 8 16. DTRUN with a cgroup for the job, DTRUN with its guard alone, Debian's MPICH where it is installed, and each
peer (`-n RANKS true` is added to its command) take turns. Told are medians in ms, the least in brackets, and each median over
the first. The standard error tells the load. `chrt -f 10 start_and_end.py ...` keeps other programs out of the way.
"""
import argparse
import os
import shutil
import statistics
import subprocess
import sys
import time


def contenders(options, ranks):
    own = [options.dtrun, "--nproc_per_node=%d" % ranks, "--no-python"]
    found = {"dtrun": own + ["/bin/true"], "dtrun, guard": own + ["--containment=guard", "/bin/true"]}
    mpich = shutil.which("mpiexec.mpich")
    if mpich:
        found["MPICH"] = [mpich, "-n", str(ranks), "/bin/true"]
    else:
        print("MPICH is left out: there is no mpiexec.mpich", file=sys.stderr)
    for peer in options.peer:
        name, _, command = peer.partition("=")
        found[name] = command.split() + ["-n", str(ranks), "/bin/true"]
    return found


def measure(commands, runs):
    times = {name: [] for name in commands}
    for run in range(-2, runs):  # two to warm up
        for name, command in commands.items():
            began = time.perf_counter()
            subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
            if run >= 0:
                times[name].append((time.perf_counter() - began) * 1e3)
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dtrun")
    parser.add_argument("ranks", nargs="*", type=int)
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--peer", action="append", default=[])
    options = parser.parse_args()
    print("load %.1f before" % os.getloadavg()[0], file=sys.stderr)
    for ranks in options.ranks or [1, 4, 8, 16]:
        times = measure(contenders(options, ranks), options.runs)
        first = statistics.median(times["dtrun"])
        for name, values in times.items():
            middle = statistics.median(values)
            print("%4d  %-16s %7.2f (%.2f)  %.2f" % (ranks, name, middle, min(values), middle / first))


if __name__ == "__main__":
    main()
