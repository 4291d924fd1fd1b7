// ConfigError: a kUsage of a configuration file instead of the command line, with another exit
// code.
#pragma once

#include <string>

#include "dtrun/base/error.h"
#include "options/command_line.h"

namespace dtrun::launcher {

class ConfigError : public base::Error {
 public:
  explicit ConfigError(const base::Error& error) : Error(error) {}
};

/// Throws an error about an option's value. Where its text begins with the option's name, it says
/// instead where the value is from, and is a ConfigError if that is a configuration file.
/// @param name the table's
[[noreturn]] void refuse_value(const CommandLine& line, const char* name, const base::Error& error);
/// Throws "--nnodes=0 <demand>", with the origin instead of the name.
[[noreturn]] void refuse_value(const CommandLine& line, const char* name,
                               const std::string& demand);

}  // namespace dtrun::launcher
