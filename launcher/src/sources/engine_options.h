// EngineOptions: what srun, mpirun or Kubernetes has told, as options that nobody has to write.
// Pure but for this machine's name, and for what mpiexec has to be asked (pmi_meeting.h).
#pragma once

#include <optional>
#include <string>

#include "dtrun/base/env.h"
#include "engines/engine.h"
#include "options/command_line.h"
#include "options/options.h"

namespace dtrun::launcher {

/// `srun dtrun ./app`: what the command line and PET_* leave open of how many nodes there are,
/// which one this is and how they meet, is what the engine says. Without --nproc_per_node there is
/// a rank for each GPU that the engine has given to this node. With --adopt this dtrun has one
/// rank, of the number that the engine has given it. What the line says goes before, and must not
/// contradict.
/// @throws Error kUsage: a contradiction (--nnodes, --node_rank); several dtruns on this node, each
/// of which would be a job of its own; an allocation of several nodes without srun; a head that
/// nobody has named; kConnection: mpiexec does not answer
EngineFindings add_engine_options(const base::Environment& environment, CommandLine& line);

}  // namespace dtrun::launcher
