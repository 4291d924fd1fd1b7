// EngineOptions: the facts that srun, mpirun or Kubernetes provides, as options that nobody has to
// write: first those of its variables and files, then, in a step of its own, those that only the
// engine itself can say.
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
/// Asks nobody and waits for nobody: what is left to ask is `open` in the findings, and the options
/// that depend on it are not there yet.
/// @throws Error kUsage: a contradiction (--nnodes, --node_rank); several dtruns on this node, each
/// of which would be a job of its own; an allocation of several nodes without srun; a head that
/// nobody has named
EngineFindings add_engine_options(const base::Environment& environment, CommandLine& line);

/// Asks the engine what is open in line.engine, by PMI (pmi_meeting.h), and completes the line;
/// without a question it does nothing. For the head it waits until all tasks have come here. A task
/// that only previews (--dry-run, --print-config) asks for their number at most.
/// @throws Error as add_engine_options(); kConnection: the engine does not answer
void meet_engine(CommandLine& line);

}  // namespace dtrun::launcher
