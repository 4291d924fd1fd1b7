// The guard: the process between agent and ranks. It is the parent of the ranks and the reaper of
// all that they start; it relays their output and runs a WorkerGroup for each round, one after the
// other, as the agent says. Forked from the agent without exec, in a session of its own;
// single-threaded. When the agent dies, everything dies: the end of the link says so.
#pragma once

#include "error_folder.h"
#include "guard_link.h"
#include "launch_plan.h"

namespace dtrun::launcher {

/// Runs the guard in the calling (just forked) process until the agent has gone, or has no more use
/// for it and kills it: between rounds it has nothing to lose. Returns its exit code.
int run_guard(const LaunchPlan& plan, const ErrorFolder& errors, GuardLink link);

}  // namespace dtrun::launcher
