// ConfigError: a kUsage for which the command line is not to blame, but a configuration file: the
// exit code is another.
#pragma once

#include "dtrun/base/error.h"
#include "options/command_line.h"

namespace dtrun::launcher {

class ConfigError : public base::Error {
 public:
  explicit ConfigError(const base::Error& error) : Error(error) {}
};

/// Throws an error that came up with an option's value. One that begins with the option's name says
/// instead where the value is from, and is a ConfigError if that is a configuration file.
/// @param name the table's
[[noreturn]] void refuse_value(const CommandLine& line, const char* name, const base::Error& error);

}  // namespace dtrun::launcher
