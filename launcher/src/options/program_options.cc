#include "options/program_options.h"

#include <fmt/core.h>

#include <algorithm>

#include "dtrun/base/error.h"
#include "dtrun/rendezvous/round_messages.h"
#include "options/option_binding.h"

namespace dtrun::launcher {

using base::Error;
using base::ErrorCode;

namespace {

Error no_program(std::size_t number) {
  if (number == 1)
    return Error(ErrorCode::kUsage, "no program was named", "",
                 "dtrun [options] PROGRAM [ARGUMENTS...]; dtrun --help lists the options");
  return Error(ErrorCode::kUsage, "no program stands after a ':'", "",
               "dtrun [options] PROGRAM ... : [options] PROGRAM ...; after --, as in dtrun "
               "[options] -- PROGRAM ..., a ':' is an argument");
}

// The line of a program after a separator.
void demand_options_of_a_program(const CommandLine& line) {
  for (const auto& [name, given] : line.values)
    if (name != "nproc-per-node" && name != "wdir" && name != "env")
      throw Error(ErrorCode::kUsage,
                  fmt::format("{} stands after a ':', and is an option of the job", given.origin),
                  "a program's own are --nproc_per_node, --wdir and -x",
                  fmt::format("{} before the first program", given.origin));
}

ProgramOptions read_later_program(const CommandLine& line, const base::Environment& environment) {
  demand_options_of_a_program(line);
  ProgramOptions program;
  OptionBinding binding(line);
  binding.parsed("nproc-per-node", program.local_ranks, parse_rank_count);
  program.variables = exported_variables(line, environment);
  program.folder = line.text("wdir", "");
  return program;
}

}  // namespace

std::string parse_rank_count(const std::string& text) {
  if (text == "cpu" || text == "gpu" || text == "auto") return text;
  // torchrun's too.
  if (text == "xpu")
    throw demand(
        "cannot be counted: dtrun knows of NVIDIA's GPUs only; it must be a number, cpu, gpu or "
        "auto");
  if (!base::parse_integer(text)) throw demand("must be a number, cpu, gpu or auto");
  return std::to_string(parse_integer_within(text, 1, rendezvous::rounds::kMostLocalRanks));
}

void read_programs(CalledAs called_as, CommandLine line, const base::Environment& environment,
                   std::vector<ProgramOptions>& programs) {
  while (true) {
    std::vector<std::string>& words = line.program;
    const auto end = line.options_ended || is_torchs_name(called_as)
                         ? words.end()
                         : std::ranges::find(words, kProgramSeparator);
    programs.back().words.assign(words.begin(), end);
    if (programs.back().words.empty()) throw no_program(programs.size());
    if (end == words.end()) return;
    // A program's own options come from the line alone: variables and files set the job's.
    line = read_command_line({end + 1, words.end()}, {});
    programs.push_back(read_later_program(line, environment));
  }
}

std::vector<std::string> words_of(const std::vector<ProgramOptions>& programs) {
  std::vector<std::string> words;
  for (const ProgramOptions& program : programs) {
    if (&program != &programs.front()) {
      words.emplace_back(kProgramSeparator);
      words.push_back("--nproc_per_node=" + program.local_ranks);
      if (!program.folder.empty()) words.push_back("--wdir=" + program.folder);
      for (const auto& [name, value] : program.variables)
        words.push_back(fmt::format("--env={}={}", name, value));
    }
    // Only the last may have a separator among its arguments.
    if (&program == &programs.back()) words.emplace_back("--");
    words.insert(words.end(), program.words.begin(), program.words.end());
  }
  return words;
}

std::map<std::string, std::string> exported_variables(const CommandLine& line,
                                                      const base::Environment& environment) {
  std::map<std::string, std::string> variables;
  if (!line.has("env")) return variables;
  for (const std::string& one : line.get("env").all) {
    const auto equals = one.find('=');
    const std::string name = one.substr(0, equals);
    if (name.empty())
      throw Error(ErrorCode::kUsage, fmt::format("-x {} names no variable", one), "",
                  "-x NAME or -x NAME=VALUE");
    const auto here = environment.get(name);
    if (equals == std::string::npos && !here)
      throw Error(ErrorCode::kUsage, fmt::format("-x {}: there is no such variable here", name), "",
                  fmt::format("set it, or say -x {}=VALUE", name));
    variables[name] = equals == std::string::npos ? *here : one.substr(equals + 1);
  }
  return variables;
}

}  // namespace dtrun::launcher
