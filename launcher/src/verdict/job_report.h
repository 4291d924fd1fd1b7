// The report to the operator at the end of a job, and its exit code.
#pragma once

#include <string>

#include "output/log_folder.h"
#include "plan/launch_plan.h"
#include "verdict/job_outcome.h"

namespace dtrun::launcher {

/// One line: why a rank failed in a round after which another one begins, if the rank has said so.
void print_round_failure(const LaunchPlan& plan, const JobOutcome& outcome);

/// Prints what went wrong, copies the first cause's file to this
/// launcher's own TORCHELASTIC_ERROR_FILE. Returns the exit code.
int report_job(const LaunchPlan& plan, const LogFolder& errors, JobOutcome& outcome);

/// Tells the guard how dtrun will exit, for those that are attached. Nothing happens where the
/// guard has gone, or has been told.
void tell_job_end(const LaunchPlan& plan, const JobOutcome& outcome, GuardLink& link);

}  // namespace dtrun::launcher
