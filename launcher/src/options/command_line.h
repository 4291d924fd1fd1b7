// The words of a command line, sorted: which options were given with which values, and the program.
// Knows the option table and nothing about what the options mean.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "dtrun/base/env.h"
#include "dtrun/base/error.h"
#include "engines/engine.h"
#include "options/option_table.h"

namespace dtrun::launcher {

/// Where a value came from. An earlier one in this list wins.
enum class Origin { kCommandLine, kTorchVariable, kOwnVariable, kFile, kEngine };

struct GivenValue {
  std::string value;   ///< "1" for a flag, and for an option whose value was left out
  std::string origin;  ///< as it was spelled: "--nproc_per_node", "PET_NPROC_PER_NODE"
  Origin kind = Origin::kCommandLine;
  std::vector<std::string> all = {};  ///< of an option of which all values count
};

struct CommandLine {
  std::map<std::string, GivenValue> values;  ///< by the table's name
  /// Options without a value that a source switches off (PET_MODULE=0): later sources do not count
  /// for them.
  std::map<std::string, GivenValue> refused;
  std::vector<std::string> program;  ///< the first one and all that follows it
  bool options_ended = false;        ///< by "--": what follows is one program
  EngineFindings engine;             ///< about the engine that has started dtrun
  std::string users_file;            ///< the user's own configuration, where there is one

  bool has(const std::string& name) const { return values.contains(name); }
  const GivenValue& get(const std::string& name) const { return values.at(name); }
  std::string text(const std::string& name, std::string otherwise) const {
    return has(name) ? get(name).value : std::move(otherwise);
  }
  /// Whether a source that goes before this one has decided the option.
  bool is_settled(const std::string& name) const { return has(name) || refused.contains(name); }
};

/// Whether dtrun is to be started on them.
inline bool names_hosts(const CommandLine& line) {
  return line.has("hosts") || line.has("hostfile");
}

/// What happens with words that cannot be read.
enum class Reading {
  kStrict,         ///< they are an error
  kWhatCanBeRead,  ///< they are passed over: for facts that are needed of a wrong command line
};

/// Command line over PET_* over DTRUN_*. '-' and '_' are the same, unique prefixes are enough, and
/// nothing after the program is looked at. CLI11 parses what stands before it. @throws Error kUsage
CommandLine read_command_line(const std::vector<std::string>& arguments,
                              const base::Environment& environment,
                              Reading reading = Reading::kStrict);

/// Runs the part. Its errors are passed over where `reading` says so.
template <typename Part>
void read_part(Reading reading, Part&& part) {
  try {
    part();
  } catch (const base::Error&) {
    if (reading == Reading::kStrict) throw;
  }
}

}  // namespace dtrun::launcher
