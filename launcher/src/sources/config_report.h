// ConfigReport: --print-config, every option's value and where it came from. Pure.
#pragma once

#include <string>

#include "options/command_line.h"

namespace dtrun::launcher {

/// A file that --config can read, with the origins as comments.
/// @throws Error kUsage where --rdzv_conf cannot be read: it may hold secrets
std::string config_report(const CommandLine& line);
/// {"nproc_per_node": {"value": "4", "origin": "command line", "where": "--nproc_per_node"}, ...};
/// null for options without a value.
std::string config_report_json(const CommandLine& line);

}  // namespace dtrun::launcher
