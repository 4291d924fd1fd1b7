// The agent: the dtrun process itself once its guard runs. It takes part in the rounds of the job
// (Membership), and the guard starts and stops this node's ranks for it. It serves a round's store
// where the head asks it to, hosts the head where the nodes meet at this one (Endpoint), and
// collects what happened. If the guard dies, it ends everything that the guard has left.
#pragma once

#include <sys/types.h>

#include <vector>

#include "output/log_folder.h"
#include "plan/launch_plan.h"
#include "ranks/keeper.h"
#include "verdict/job_events.h"
#include "verdict/job_outcome.h"

namespace dtrun::launcher {

/// Runs the job to its end.
/// @param guard stays until the caller ends it: if this process dies before it has reported what
/// happened, the guard still cleans up
/// @param metrics_listener where metrics are asked for; may be closed
/// @param start_sign by it comes the word that the job may begin; closed: it may
/// @param not_ours children that this process had before it was dtrun (shells exec)
/// @throws Error when the nodes do not come together; then the guard runs on until the link closes
JobOutcome run_agent(const LaunchPlan& plan, const LogFolder& errors, JobEvents& events,
                     base::UniqueFd metrics_listener, base::UniqueFd start_sign, GuardHandle& guard,
                     std::vector<pid_t> not_ours);

}  // namespace dtrun::launcher
