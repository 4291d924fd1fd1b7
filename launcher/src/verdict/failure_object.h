// FailureObject: the failure table for programs: the fields of the JSON object that
// --log-format=json prints instead of it. Pure.
#pragma once

#include <boost/json/object.hpp>

#include "verdict/failure_table.h"

namespace dtrun::launcher {

/// {"root_cause":{...},"failures":[{...}, ...]}, of which the first is the root cause. Each has
/// rank, local_rank, host, pid, time, exitcode (negative: a signal), signal (its name or null),
/// error_file (or null), text, stopped (by dtrun, after another's failure), out_of_memory, core
/// (one was dumped) and stderr_tail.
boost::json::object failure_object(const LaunchPlan& plan, const FailedRanks& failed);

}  // namespace dtrun::launcher
