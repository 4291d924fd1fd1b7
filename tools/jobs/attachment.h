// Attachment: `dtrun attach`: what a job writes from now on, as it writes it, until it ends.
#pragma once

#include "jobs/local_job.h"

namespace dtrun::jobs {

/// Writes what the job's dtrun writes to its standard output and error to this program's. Blocks.
/// @returns the job's exit code
/// @throws Error kUnavailable: the job does not let this process attach; kConnection: its dtrun has
/// been killed; kSystem
int attach(const LocalJob& job);

}  // namespace dtrun::jobs
