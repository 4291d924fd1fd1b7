#!/usr/bin/env bash
# mpich.sh ./app ARGUMENTS...: ranks by the mpiexec of MPICH or Intel MPI, in the two ways that there are
# (docs/engines.md). HOSTS=node1,node2 for several machines. RANKS: per machine.
# MPIEXEC: its name, where another MPI's comes first (mpiexec.hydra, mpiexec.mpich).
set -euo pipefail
hosts=${HOSTS:-localhost} ranks=${RANKS:-2} mpiexec=${MPIEXEC:-mpiexec}
machines=$(tr ',' '\n' <<<"$hosts" | wc -l)

# One dtrun per machine, which starts the ranks of its machine.
"$mpiexec" -hosts "$hosts" -ppn 1 -n "$machines" dtrun --nproc_per_node="$ranks" "$@"

# Or one per rank, where mpiexec is to place and bind them.
"$mpiexec" -hosts "$hosts" -ppn "$ranks" -n $((machines * ranks)) dtrun --adopt "$@"
