// The agent: the dtrun process itself once its guard runs. Takes part in the rounds of the job
// (Membership), has the guard start and stop this node's ranks as they say, serves the store of a
// round where it is asked to, hosts the rounds' head where the nodes meet at this one (Endpoint),
// and collects what happened. Should the guard die, it ends everything that the guard has left.
#pragma once

#include <sys/types.h>

#include <vector>

#include "launch/launch_plan.h"
#include "output/log_folder.h"
#include "ranks/keeper.h"
#include "verdict/job_outcome.h"

namespace dtrun::launcher {

/// Runs the job to its end.
/// @param guard stays until the caller ends it: should this process die before it has told what
/// happened, there is still somebody to clean up
/// @param not_ours children that this process had before it was dtrun (shells exec)
/// @throws Error when the nodes do not come together; then the guard runs on until the link closes
JobOutcome run_agent(const LaunchPlan& plan, const LogFolder& errors, GuardHandle& guard,
                     std::vector<pid_t> not_ours);

}  // namespace dtrun::launcher
