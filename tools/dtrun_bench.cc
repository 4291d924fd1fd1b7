// dtrun-bench: what this machine's collectives take, as one rank of a job.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <string>

#include "bench/collectives_command.h"
#include "bench/tune_command.h"
#include "dtrun/base/env.h"
#include "dtrun/base/error.h"
#include "dtrun/rendezvous/failure_report.h"
#include "options/exit_code.h"
#include "text/spelling.h"
#include "told_error.h"

namespace dtrun::bench {
namespace {

using base::Error;
using base::ErrorCode;

constexpr const char* kHelp =
    "dtrun --nproc_per_node=4 dtrun-bench collectives --help lists the options";

/// What CLI11 calls unexpected, with the option that was meant.
Error error_of(const CLI::ParseError& error, const CLI::App& app, int argc, char** argv) {
  if (argc == 1)
    return {ErrorCode::kUsage, "nothing to measure", "no command was given",
            "dtrun-bench collectives, or dtrun-bench tune"};
  const std::string first = argv[1];
  if (app.get_subcommands().empty() && !first.starts_with("-")) {
    const std::string_view nearest = launcher::nearest_name(first, {"collectives", "tune"});
    return {ErrorCode::kUsage, fmt::format("nothing is called '{}'", first),
            "dtrun-bench knows collectives and tune",
            nearest.empty() ? "" : fmt::format("did you mean {}?", nearest)};
  }
  const CLI::App* command = &app;
  for (const CLI::App* used : app.get_subcommands()) command = used;
  std::vector<std::string> names;
  for (const CLI::Option* option : command->get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  const std::vector<std::string_view> known(names.begin(), names.end());
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const std::string name = word.substr(0, word.find('='));
    if (!name.starts_with("--") || std::find(names.begin(), names.end(), name) != names.end())
      continue;
    const std::string_view nearest = launcher::nearest_name(name, known);
    return {ErrorCode::kUsage, "unknown option " + name, "",
            nearest.empty() ? kHelp : fmt::format("did you mean {}?", nearest)};
  }
  return {ErrorCode::kUsage, error.what(), "", kHelp};
}

int run(int argc, char** argv) {
  CLI::App app(
      "dtrun-bench measures collectives between the ranks of a job. dtrun starts it:\n"
      "dtrun --nproc_per_node=4 dtrun-bench collectives");
  app.name("dtrun-bench");
  app.set_version_flag("--version", "dtrun-bench " DTRUN_VERSION);
  app.require_subcommand(1);
  CollectivesOptions collectives;
  CLI::App* const measures = app.add_subcommand(
      "collectives", "time, bandwidth and correctness of each collective, by size");
  add_options(*measures, collectives);
  TuneOptions tune;
  CLI::App* const tunes =
      app.add_subcommand("tune", "measures the links of a mesh for DTensor's planner");
  add_options(*tunes, tune);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& wanted) {
    // Of N ranks one is enough.
    return base::get_env("RANK").value_or("0") == "0" ? app.exit(wanted) : 0;
  } catch (const CLI::ParseError& error) {
    throw error_of(error, app, argc, argv);
  }
  return measures->parsed() ? run_collectives(collectives) : run_tune(tune);
}

/// All ranks fail alike, and dtrun shows what it finds in an error file once. Who started the ranks
/// otherwise reads it on standard error.
void tell(const std::string& text) {
  const std::string file = base::get_env("TORCHELASTIC_ERROR_FILE").value_or("");
  if (!file.empty()) {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    try {
      rendezvous::write_failure_report(
          file, {.message = "dtrun-bench: " + text,
                 .call_stack = "",
                 .timestamp = std::chrono::duration_cast<std::chrono::seconds>(now).count()});
      return;
    } catch (const Error&) {
      // The text that follows on standard error says it, too.
    }
  }
  fmt::print(stderr, "dtrun-bench: error: {}\n", text);
}

}  // namespace
}  // namespace dtrun::bench

int main(int argc, char** argv) {
  using namespace dtrun;
  try {
    return bench::run(argc, argv);
  } catch (const base::Error& error) {
    bench::tell(tools::told(error));
    const bool is_usage = error.code() == base::ErrorCode::kUsage ||
                          error.code() == base::ErrorCode::kInvalidArgument;
    return is_usage ? launcher::kExitUsage : launcher::kExitSystem;
  } catch (const std::exception& error) {
    bench::tell(error.what());
    return launcher::kExitInternal;
  }
}
