// EventLog: --event-log-handler=console writes how each rank of this node has ended, in the records
// of torchrun's handler of that name. Pure.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "plan/launch_plan.h"
#include "verdict/job_outcome.h"

namespace dtrun::launcher {

/// One line of JSON for each rank: {"name": "torchelastic.worker.status.FAILED", "source":
/// "WORKER", "timestamp": milliseconds, "metadata": {...}}. SUCCEEDED, FAILED, or TERMINATED, if it
/// was stopped for another's failure.
/// @param host this machine's name
std::vector<std::string> worker_events(const LaunchPlan& plan, const JobOutcome& outcome,
                                       const std::string& host,
                                       std::chrono::system_clock::time_point now);

}  // namespace dtrun::launcher
