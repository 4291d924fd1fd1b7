// What happens when an exception leaves main() or a thread of a worker: its text goes to standard
// error with the rank before every line and into error.json, and the process exits with 1.
#pragma once

#include "dtrun/base/env.h"

namespace dtrun::runtime {

/// Installs the handler (std::set_terminate) once per process; the first caller's RANK and
/// TORCHELASTIC_ERROR_FILE count, as they stand: they may be wrong, and that itself the error.
/// std::terminate() without an exception still aborts.
void report_escaped_exceptions(const base::Environment& environment);

}  // namespace dtrun::runtime
