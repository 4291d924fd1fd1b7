// Inquiry: a command line that only asks: --help, --version, --print-config, --completion. Pure.
#pragma once

#include <optional>
#include <string>

#include "options/command_line.h"

namespace dtrun::launcher {

/// What to print on standard output before ending with success; nullopt: there is a job to do.
/// @throws Error kUsage: an option, a shell, a format that is not known
std::optional<std::string> answer_to_inquiry(const CommandLine& line);

}  // namespace dtrun::launcher
