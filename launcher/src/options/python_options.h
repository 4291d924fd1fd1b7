// PythonOptions: the options that torchrun has because it is a Python program. Each is read, and
// one line says what it means here.
#pragma once

#include "options/option_values.h"
#include "options/options.h"

namespace dtrun::launcher {

/// --start_method, --event_log_handler, --logs_specs, --monitor_interval, --run_path.
/// @throws Error kUsage
void read_python_options(const OptionValues& values, Options& options);

}  // namespace dtrun::launcher
