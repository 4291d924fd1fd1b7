#!/usr/bin/env bash
# openmpi.sh ./app ARGUMENTS...: ranks by Open MPI's mpirun, in the two ways that there are (docs/engines.md).
# HOSTS=node1,node2 for several machines; their first is where task 0 is. RANKS: per machine.
# MPIEXEC: the name of mpirun, where another MPI's comes first (mpirun.openmpi).
set -euo pipefail
hosts=${HOSTS:-localhost} ranks=${RANKS:-2} mpirun=${MPIEXEC:-mpirun}
machines=$(tr ',' '\n' <<<"$hosts" | wc -l)
head=()
((machines == 1)) || head=(-x "MASTER_ADDR=${hosts%%,*}")

# One dtrun per machine, which starts the ranks of its machine.
"$mpirun" --host "${hosts//,/:1,}:1" --npernode 1 --bind-to none "${head[@]}" \
  dtrun --nproc_per_node="$ranks" "$@"

# Or one per rank, where mpirun is to place and bind them.
"$mpirun" --host "${hosts//,/:$ranks,}:$ranks" -n $((machines * ranks)) "${head[@]}" \
  dtrun --adopt "$@"
