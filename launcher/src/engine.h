// Engine: what started this dtrun on several machines at once (srun, mpirun), as the environment
// tells it: how many nodes there are, which one this is, and where they can meet. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "dtrun/base/env.h"

namespace dtrun::launcher {

struct Engine {
  std::string name;  ///< for messages: "Slurm step 17.0", "Open MPI"
  int nodes = 1;
  int node_index = 0;
  int tasks_on_node = 1;  ///< dtrun wants to be one
  std::string head_host;  ///< empty: the engine does not tell
  std::optional<std::uint16_t> port;
  std::string job_id;  ///< empty: the engine does not tell
  std::optional<int> gpus_on_node;
  int restart_count = 0;  ///< how often the engine has requeued the job
};

/// nullopt: nobody has; a batch script's own shell is not a step.
/// @throws Error kUsage when the variables contradict each other or cannot be read
std::optional<Engine> detect_engine(const base::Environment& environment);

}  // namespace dtrun::launcher
