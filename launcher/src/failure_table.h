// The failure table, in torchrun's layout, and the last words of the rank that failed first. Pure.
#pragma once

#include <string>

#include "job_outcome.h"
#include "launch_plan.h"

namespace dtrun::launcher {

/// Empty when no rank of this node is to blame.
std::string failure_table(const LaunchPlan& plan, const JobOutcome& outcome,
                          const std::string& host);

}  // namespace dtrun::launcher
