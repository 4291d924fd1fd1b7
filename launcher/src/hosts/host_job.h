// HostJob: dtrun --hosts: the starter that the user has started. It runs no ranks itself; a host
// that is this machine has a dtrun of its own, too.
#pragma once

#include "dtrun/base/env.h"
#include "hosts/host_plan.h"

namespace dtrun::launcher {

/// Runs the job to its end on all hosts. @returns the exit code of dtrun
/// @throws Error kUnavailable where there is no such remote shell
int run_host_job(const HostPlan& plan, const base::Environment& environment);

}  // namespace dtrun::launcher
