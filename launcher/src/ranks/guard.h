// The guard: the process between keeper and ranks. It is the parent of the ranks and the reaper of
// all that they start; it relays their output and runs a WorkerGroup for each round, one after the
// other, as the agent says. Forked from the keeper without exec, in a session of its own;
// single-threaded, but for the output, which may hang (output/output_thread.h). When the agent
// dies, everything dies: the end of the link says so.
#pragma once

#include "output/log_folder.h"
#include "plan/launch_plan.h"
#include "ranks/containment.h"
#include "ranks/guard_link.h"

namespace dtrun::launcher {

/// Runs the guard in the calling (just forked) process until the agent has gone, or has no more use
/// for it and kills it: between rounds it has nothing to lose. Returns its exit code.
int run_guard(const LaunchPlan& plan, const LogFolder& errors, Containment& containment,
              GuardLink link);

}  // namespace dtrun::launcher
