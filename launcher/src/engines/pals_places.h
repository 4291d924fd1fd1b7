// PalsPlaces: where the tasks of an application of PALS (HPE Cray's mpiexec) run, as the file says
// that PALS and its imitators (Slurm's mpi/cray_shasta, Flux's cray-pals) write on every node for
// Cray's PMI: PALS_APINFO. Its layout is public in HPE's pals.h: C structures as they lie in the
// memory of a 64-bit machine; a header with size, place and number of each table. Pure.
#pragma once

#include <string>
#include <string_view>

namespace dtrun::launcher {

struct PalsPlaces {
  std::string head_host;  ///< where task 0 is
  int nodes = 1;
  int node = 0;  ///< of the task that was asked for
};

/// @throws Error kUsage: the file contradicts itself, or has no such task
PalsPlaces read_pals_places(std::string_view file, int task);

}  // namespace dtrun::launcher
