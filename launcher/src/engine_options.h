// EngineOptions: what srun or mpirun has told, as options that nobody has to write. Pure.
#pragma once

#include "command_line.h"
#include "engine.h"

namespace dtrun::launcher {

/// `srun dtrun ./app`: where the command line and PET_* say nothing of how nodes meet, the engine's
/// nodes are the job's, its first one hosts, and its job id is the run id. Without --nproc_per_node
/// there is a rank for each GPU that the engine has given to this node.
/// @throws Error kUsage: it has started several dtruns on this node, each of which would be a job
/// of its own; or it does not tell where to meet
void add_engine_options(const Engine& engine, CommandLine& line);

}  // namespace dtrun::launcher
