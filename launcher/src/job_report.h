// What the operator reads at the end of a job, and the exit code that goes with it.
#pragma once

#include <string>

#include "error_folder.h"
#include "job_outcome.h"
#include "launch_plan.h"

namespace dtrun::launcher {

/// "dtrun: error: ..." on standard error.
void print_error(const std::string& text);

/// Why a rank of a round, after which another one begins, has failed: a line, where it has said so.
void print_round_failure(const ErrorFolder& errors, JobOutcome& outcome);

/// Reads the ranks' error.json, prints what went wrong, copies the first cause's file to this
/// launcher's own TORCHELASTIC_ERROR_FILE. Returns the exit code.
int report_job(const LaunchPlan& plan, const ErrorFolder& errors, JobOutcome& outcome);

}  // namespace dtrun::launcher
