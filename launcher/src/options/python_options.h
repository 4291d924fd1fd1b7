// PythonOptions: the options that torchrun has because it is a Python program. Each is read, and
// one line says what it means here.
#pragma once

#include "options/option_binding.h"
#include "options/options.h"

namespace dtrun::launcher {

/// --start_method, --event_log_handler, --logs_specs, --monitor_interval, --run_path.
void bind_python_options(OptionBinding& binding, Options& options);
/// Says which of them have no effect.
void tell_python_options(const CommandLine& line, Options& options);

}  // namespace dtrun::launcher
