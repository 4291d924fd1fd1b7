#include "plan/planned_program.h"

#include <fmt/core.h>

#include "cpus/device_count.h"

namespace dtrun::launcher {
namespace {

using base::Error;
using base::ErrorCode;

int decide_local_ranks(const ProgramOptions& program, const base::Environment& environment,
                       const ProgramFacts& facts) {
  const std::string& wish = program.local_ranks;
  if (const auto number = base::parse_integer(wish)) return static_cast<int>(*number);
  if (wish == "cpu") return facts.cpus;
  if (facts.gpus > 0) return facts.gpus;
  if (wish == "auto") return facts.cpus;
  const auto visible = variable_of(program, environment, kVisibleDevices);
  throw Error(ErrorCode::kUnavailable, "--nproc_per_node=gpu, but there is no GPU here",
              visible ? fmt::format("CUDA_VISIBLE_DEVICES='{}' is in force", *visible)
                      : "neither NVML nor /proc/driver/nvidia shows one",
              "--nproc_per_node=cpu, auto or a number");
}

base::ChildCommand make_command(const Options& options, const ProgramOptions& program,
                                const base::Environment& environment, const ProgramFacts& facts,
                                bool is_python) {
  base::ChildCommand command;
  command.folder = facts.folder;
  command.path = facts.path;
  if (is_python) {
    command.arguments = {interpreter_of(program, environment), "-u"};
    if (options.module && !options.run_path) command.arguments.emplace_back("-m");
  }
  command.arguments.push_back(program.words[0]);
  // torch.distributed.launch puts it there, before the program's own.
  if (options.pass_local_rank)
    command.arguments.push_back(fmt::format("--local-rank={}", kLocalRankMacro));
  command.arguments.insert(command.arguments.end(), program.words.begin() + 1, program.words.end());
  return command;
}

}  // namespace

PlannedProgram plan_program(const Options& options, const ProgramOptions& program,
                            const base::Environment& environment, const ProgramFacts& facts) {
  const bool is_python = runs_in_python(options, program.words[0], facts.is_data_file);
  return {.name = program.words[0],
          .local_ranks = decide_local_ranks(program, environment, facts),
          .is_python = is_python,
          .command = make_command(options, program, environment, facts, is_python)};
}

}  // namespace dtrun::launcher
