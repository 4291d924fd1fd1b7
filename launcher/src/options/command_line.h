// The words of a command line, sorted: which options were given with which values, and the program.
// Knows the option table and nothing about what the options mean.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "dtrun/base/env.h"
#include "dtrun/base/error.h"
#include "engines/engine.h"
#include "options/option_table.h"

namespace dtrun::launcher {

/// Where a value came from; each goes before those after it.
enum class Origin { kCommandLine, kTorchVariable, kOwnVariable, kFile, kEngine };

struct GivenValue {
  std::string value;   ///< "1" for a flag, and for an option whose value was left out
  std::string origin;  ///< as it was spelled: "--nproc_per_node", "PET_NPROC_PER_NODE"
  Origin kind = Origin::kCommandLine;
};

struct CommandLine {
  std::map<std::string, GivenValue> values;  ///< by the table's name
  /// Options without a value of which it is said that they are not given (PET_MODULE=0): places
  /// that come later do not count.
  std::map<std::string, GivenValue> refused;
  std::vector<std::string> program;
  EngineFindings engine;   ///< what has started dtrun
  std::string users_file;  ///< the user's own configuration, where there is one

  /// By a place that goes before this one.
  bool is_settled(const std::string& name) const {
    return values.contains(name) || refused.contains(name);
  }
};

/// Whether dtrun is to be started on them.
inline bool names_hosts(const CommandLine& line) {
  return line.values.contains("hosts") || line.values.contains("hostfile");
}

/// What is done with what cannot be read.
enum class Reading {
  kStrict,         ///< it is an error
  kWhatCanBeRead,  ///< it is passed over: for what has to be known of a line that is wrong
};

/// Command line over PET_* over DTRUN_*. '-' and '_' are the same, unique prefixes are enough, and
/// nothing after the program is looked at. @throws Error kUsage
CommandLine read_command_line(const std::vector<std::string>& arguments,
                              const base::Environment& environment,
                              Reading reading = Reading::kStrict);

/// Does it; its errors are passed over where `reading` says so.
template <typename Part>
void read_part(Reading reading, Part&& part) {
  try {
    part();
  } catch (const base::Error&) {
    if (reading == Reading::kStrict) throw;
  }
}

/// @param origin for the message. @throws Error kUsage where this version does not have it
void demand_built(const OptionRow& row, const std::string& origin);

}  // namespace dtrun::launcher
