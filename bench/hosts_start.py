#!/usr/bin/env python3
"""hosts_start.py DTRUN [--mpi DIR] [--runs N] [--hosts N,N]: how long a job over ssh takes to start, beside MPIs.

One rank on each of N hosts of the lab (tests/lab/slurm), each with an sshd, started from the lab's head; needs root. The rank
prints the time when it begins: told are the times from the launcher's start to the last rank's beginning and to the
launcher's end, medians in ms, the least in brackets; and the median of dtrun's time over another's in the same round, which
tells more where the machine is busy. "ssh" is the bare ssh to all hosts at once: no launcher that opens its connections anew can
be faster. "new" is dtrun --ssh_persist=0, which does so, too. dtrun itself keeps its connections for a minute: its first run,
which is told apart, opens them, and the others find them. DIR holds the MPIs that mpi-up style virtual
environments have: DIR/openmpi, DIR/mpich. The contenders take turns, each round in another order.
"""
import argparse
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

LAB = pathlib.Path(__file__).resolve().parent.parent / "tests/lab/slurm"
RANK = ["date", "+began %s.%N"]


def contenders(options, hosts):
    names = ["node%d" % (i + 1) for i in range(hosts)]
    bare = 'for host in %s; do ssh -T -o BatchMode=yes $host "$(printf "\'%%s\' " "$@")" & done; wait' % " ".join(names)
    found = {"dtrun": ([options.dtrun, "--hosts=" + ",".join(name + ":1" for name in names)], {}),
             "new": ([options.dtrun, "--ssh_persist=0", "--hosts=" + ",".join(name + ":1" for name in names)], {}),
             "ssh": (["sh", "-c", bare, "sh"], {})}
    for mpi, words in (
        ("openmpi", ["--host", ",".join(name + ":1" for name in names), "-n", str(hosts)]),
        ("mpich", ["-launcher", "ssh", "-hosts", ",".join(names), "-n", str(hosts)]),
    ):
        folder = pathlib.Path(options.mpi or "/nowhere") / mpi
        if not (folder / "bin/mpiexec").exists():
            continue
        more = ["--prefix", str(folder)] if mpi == "openmpi" else []
        variables = {"LD_LIBRARY_PATH": str(folder / "lib"), "OPAL_PREFIX": str(folder),
                     "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        found[mpi] = ([str(folder / "bin/mpiexec")] + more + words, variables)
    return found


def run_once(lab, command, variables, hosts):
    ssh = str(pathlib.Path(lab) / "ssh")
    environment = dict(os.environ, LAB_DIR=lab, **variables)
    # The launcher's own start: what brings it to the head takes time, too.
    script = 'echo "start $(date +%s.%N)"; export PATH=' + ssh + ':$PATH; "$@"; echo "end $(date +%s.%N)"'
    try:
        result = subprocess.run([str(LAB / "hosts-exec"), "0", "sh", "-c", script, "sh"] + command + RANK, timeout=20,
                                env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        return None
    words = result.stdout.decode().replace("began", "\nbegan").split("\n")
    times = {"start": [], "began": [], "end": []}
    for line in words:
        kind, _, value = line.partition(" ")
        if kind in times:
            times[kind].append(float(value))
    if len(times["began"]) != hosts:
        return None
    start = times["start"][0]
    return (max(times["began"]) - start) * 1e3, (times["end"][0] - start) * 1e3


def tell(hosts, name, times, of_dtrun):
    if name == "dtrun" and times[0]:
        print("%d hosts  %-8s last main %5.0f  end %5.0f" % (hosts, "first", *times[0]), flush=True)
        times = times[1:]
    failed = times.count(None)
    if failed == len(times):
        print("%d hosts  %-8s no run succeeded" % (hosts, name), flush=True)
        return
    begun, ended = zip(*filter(None, times))
    ratios = [own[0] / other[0] for own, other in zip(of_dtrun, times) if own and other]
    print("%d hosts  %-8s last main %5.0f (%.0f)  end %5.0f (%.0f)%s%s" % (
        hosts, name, statistics.median(begun), min(begun), statistics.median(ended), min(ended),
        "  dtrun / it %.3f" % statistics.median(ratios) if name != "dtrun" and ratios else "",
        "  %d of %d runs hung or failed" % (failed, len(times)) if failed else ""), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("dtrun", type=os.path.abspath)
    parser.add_argument("--mpi")
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--hosts", default="2,4")
    options = parser.parse_args()
    counts = [int(count) for count in options.hosts.split(",")]
    with tempfile.TemporaryDirectory() as folder:
        lab = folder + "/lab"
        environment = dict(os.environ, LAB_DIR=lab)
        subprocess.run([str(LAB / "hosts-up"), str(max(counts))], env=environment, check=True, stdout=subprocess.DEVNULL)
        try:
            subprocess.run([str(LAB / "hosts-sshd")] + [str(i + 1) for i in range(max(counts))],
                           env=environment, check=True)
            for hosts in counts:
                seen = {name: [] for name in contenders(options, hosts)}
                for run in range(options.runs):
                    order = list(contenders(options, hosts).items())
                    for name, (command, variables) in order[run % len(order):] + order[:run % len(order)]:
                        seen[name].append(run_once(lab, command, variables, hosts))
                for name, times in seen.items():
                    tell(hosts, name, times, seen["dtrun"])
        finally:
            for i in range(max(counts)):  # the next lab's hosts have these names, too
                subprocess.run([str(LAB / "hosts-exec"), "0", lab + "/ssh/ssh", "-o", "ControlPath=/tmp/dtrun-ssh-%i/%C", "-O",
                                "exit", "node%d" % (i + 1)], env=environment, stderr=subprocess.DEVNULL)
            subprocess.run([str(LAB / "hosts-down")], env=environment, check=True)


if __name__ == "__main__":
    main()
