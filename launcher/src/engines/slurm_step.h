// SlurmStep: what srun tells its tasks, and what else of Slurm dtrun may find itself in: the shell
// of a batch script or of salloc, a part of a heterogeneous job. Pure.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "dtrun/base/env.h"
#include "engines/engine.h"

namespace dtrun::launcher {

/// Nodes, head, port, GPUs of the step; the rest is in the table's row.
/// @throws Error kUsage: the variables contradict each other; several components of a heterogeneous
/// job
void complete_slurm_step(const base::Environment& environment, Engine& engine);

/// A step that was made for a shell (an interactive one, the batch script's), not for dtrun.
bool is_slurm_shell(const base::Environment& environment);

/// An allocation of several nodes of which srun has not started this dtrun: the name of the job,
/// for messages; else nullopt.
struct SlurmShell {
  std::string job_id;
  int nodes = 1;
  std::string nodes_list;
};
std::optional<SlurmShell> find_slurm_shell(const base::Environment& environment);

/// Slurm signals all processes of a step, in any order. This is how long after dtrun's own signal
/// the same signal may still come to the ranks; 0 outside of a job of Slurm.
std::chrono::nanoseconds slurm_signal_spread(const base::Environment& environment);

/// The first node of the allocation: where mpirun puts its rank 0. Empty: not in one.
std::string first_slurm_node(const base::Environment& environment);

}  // namespace dtrun::launcher
