// The words of a command line, sorted: which options were given with which values, and the program.
// Knows the option table and nothing about what the options mean.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "dtrun/base/env.h"

namespace dtrun::launcher {

struct GivenValue {
  std::string value;   ///< "1" for a flag
  std::string origin;  ///< "--nproc_per_node" as it was spelled, or "PET_NPROC_PER_NODE"
};

struct CommandLine {
  std::map<std::string, GivenValue> values;  ///< by the table's name
  std::vector<std::string> program;
};

/// Command line over PET_* over DTRUN_*. '-' and '_' are the same, unique prefixes are enough, and
/// nothing after the program is looked at. @throws Error kUsage
CommandLine read_command_line(const std::vector<std::string>& arguments,
                              const base::Environment& environment);

std::string help_text();

}  // namespace dtrun::launcher
