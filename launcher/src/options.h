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
/// How the agents of several nodes find each other: by --master_addr and --node_rank, or by
/// --rdzv_endpoint alone, the same line on every node.
enum class Rendezvous { kStatic, kC10d };
/// Whether this agent is the one that serves the endpoint (is_host of --rdzv_conf).
enum class Hosting { kByAddress, kAlways, kNever };

struct Options {
  Request request = Request::kRun;
  std::string local_ranks = "1";  ///< a number, "cpu", "gpu" or "auto"
  int node_count = 1;
  Rendezvous rendezvous = Rendezvous::kStatic;
  Hosting hosting = Hosting::kByAddress;
  std::optional<int> node_rank;  ///< none (c10d only): node 0 gives it out
  /// Where the agents meet and the ranks' store is: of --master_addr, or of --rdzv_endpoint.
  std::string master_addr = "127.0.0.1";
  std::optional<std::uint16_t> master_port;  ///< none: the kernel's choice
  std::string role = "default";
  std::string run_id;   ///< empty: made by the plan
  std::string log_dir;  ///< empty: a private folder, removed at the end
  Tagging tagging = Tagging::kAuto;
  std::chrono::nanoseconds shutdown_grace = std::chrono::seconds(30);
  std::chrono::nanoseconds join_timeout = std::chrono::seconds(600);
  std::chrono::nanoseconds answer_timeout = std::chrono::seconds(10);  ///< of node 0 to a hello
  bool module = false;
  bool no_python = false;
  bool pass_local_rank = false;  ///< --local-rank=N before the program's own arguments
  bool verbose = false;
  std::vector<std::string> warnings;  ///< what was given and has no effect
  std::vector<std::string> program;   ///< the program and its arguments, verbatim
};

/// @param called_as argv[0]: a link named torch.distributed.launch passes --local-rank, as it does
/// @param arguments without argv[0]
/// @throws Error kUsage that names the option or the variable
Options parse_options(const std::string& called_as, const std::vector<std::string>& arguments,
                      const base::Environment& environment);

}  // namespace dtrun::launcher
