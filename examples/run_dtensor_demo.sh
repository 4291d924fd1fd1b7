#!/usr/bin/env bash
# run_dtensor_demo.sh [basic|full|large] [--cpu] [--debug] [DTRUN OPTION ...]
#   basic   2 ranks: all but the mesh of two axes
#   full    4 ranks (where nothing is said)
#   large   8 ranks
#   --cpu   no GPU, even where there are some
#   --debug every redistribution is told, with its cause (TORCH_LOGS=+dtensor)
# What follows goes to dtrun: on two nodes, on each of them with its own --node_rank,
#   run_dtensor_demo.sh --nnodes=2 --node_rank=0 --master_addr=node0 --master_port=29500
# BIN names the folder of dtrun and dtensor_demo, where they are not in build/release/bin.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
bin=${BIN:-$here/../build/release/bin}
ranks=4
options=()
for argument in "$@"; do
  case $argument in
    basic) ranks=2 ;;
    full) ranks=4 ;;
    large) ranks=8 ;;
    --cpu) export CUDA_VISIBLE_DEVICES= ;;
    --debug) export TORCH_LOGS=+dtensor ;;
    -h | --help) sed -n '2,11s/^# \?//p' "$0"; exit 0 ;;
    -*) options+=("$argument") ;;
    *) echo "run_dtensor_demo.sh: there is no configuration '$argument': basic, full or large" >&2; exit 64 ;;
  esac
done
for program in dtrun dtensor_demo; do
  [[ -x $bin/$program ]] || {
    echo "run_dtensor_demo.sh: there is no $bin/$program" >&2
    echo "  try: scripts/demo, which builds it, or BIN=FOLDER" >&2
    exit 66
  }
done
exec "$bin/dtrun" --nproc_per_node="$ranks" "${options[@]}" "$bin/dtensor_demo"
