// ConfigFile: options kept in a file, one per line. TOML would want quotes around host:29500 and
// sections that dtrun has no use for. CLI11 2.1's reader of such files tells no lines, takes a '#'
// in quotes for a comment, and cuts values at commas and blanks:
//
//     # a comment
//     nproc_per_node = 4
//     role = "trainer"        # or without quotes, to the end of the line or a " #"
//     standalone = true       # an option without a value: true, false, 1 or 0
//
// '-' and '_' are the same; names are written whole and once; there are no sections.
#pragma once

#include <string>
#include <string_view>

#include "options/command_line.h"

namespace dtrun::launcher {

/// Adds the options that the command line does not set yet. Pure.
/// @param name of the file, for messages and origins: "job.conf:3: nproc_per_node"
/// @throws ConfigError kUsage that names file and line
void add_config_text(std::string_view text, const std::string& name, CommandLine& line,
                     Reading reading = Reading::kStrict);

/// The value as the file has it: in quotes where it must be.
std::string written_in_config(std::string_view value);

}  // namespace dtrun::launcher
