// EngineOptions: the facts that srun, mpirun or Kubernetes provides, as options that nobody has to
// write. Pure, except for this machine's name and for questions to mpiexec (engine_meeting.h).
#pragma once

#include <optional>
#include <string>

#include "dtrun/base/env.h"
#include "engines/engine.h"
#include "options/command_line.h"
#include "options/options.h"

namespace dtrun::launcher {

/// `srun dtrun ./app`: the engine says how many nodes there are, which one this is and how they
/// meet, as far as the command line and PET_* leave that open. Without --nproc_per_node there is a
/// rank for each GPU that the engine has given to this node. With --adopt this dtrun has one rank,
/// with the engine's number. The command line goes before the engine, and must not contradict it.
/// @throws Error kUsage: a contradiction (--nnodes, --node_rank); several dtruns on this node, each
/// of which would be a job of its own; an allocation of several nodes without srun; a head that
/// nobody has named; kConnection: mpiexec does not answer
EngineFindings add_engine_options(const base::Environment& environment, CommandLine& line);

}  // namespace dtrun::launcher
