// What happens when an exception leaves main() or a thread of a worker: its text goes to standard
// error with the rank before every line and into error.json, and the process exits with 1.
#pragma once

#include <string>

namespace dtrun::runtime {

/// Installs the handler (std::set_terminate) once per process; the first worker's rank and file
/// count. std::terminate() without an exception still aborts.
void report_escaped_exceptions(int rank, const std::string& error_file);

}  // namespace dtrun::runtime
