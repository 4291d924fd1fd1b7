// Options: the command line of dtrun, read once at the start. One table (option_table()) says which
// options there are; parsing, help, environment defaults and suggestions all come from it.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dtrun/base/env.h"

namespace dtrun::launcher {

struct OptionRow {
  const char* name;   ///< long spelling, with '-'
  char letter;        ///< short spelling; 0: none
  const char* value;  ///< what the value is called in help; nullptr: a flag
  const char* help;   ///< nullptr: torchrun has it, this version does not
};

const std::vector<OptionRow>& option_table();

enum class Request { kRun, kHelp, kVersion };
enum class Tagging { kAuto, kAlways, kNever };

struct Options {
  Request request = Request::kRun;
  std::string local_ranks = "1";  ///< a number, "cpu", "gpu" or "auto"
  int node_count = 1;
  int node_rank = 0;
  std::string master_addr = "127.0.0.1";
  std::optional<std::uint16_t> master_port;  ///< none: the kernel's choice
  std::string role = "default";
  std::string run_id;   ///< empty: made by the plan
  std::string log_dir;  ///< empty: a private folder, removed at the end
  Tagging tagging = Tagging::kAuto;
  std::chrono::nanoseconds shutdown_grace = std::chrono::seconds(30);
  std::chrono::nanoseconds join_timeout = std::chrono::seconds(600);
  bool module = false;
  bool no_python = false;
  bool verbose = false;
  std::vector<std::string> program;  ///< the program and its arguments, verbatim
};

/// @param arguments without argv[0]
/// @throws Error kUsage that names the option or the variable
Options parse_options(const std::vector<std::string>& arguments,
                      const base::Environment& environment);

}  // namespace dtrun::launcher
