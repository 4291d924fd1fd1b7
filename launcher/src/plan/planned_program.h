// PlannedProgram: one of the programs of a job, and the ranks of each node that run it. Pure.
#pragma once

#include <string>

#include "dtrun/base/child_process.h"
#include "dtrun/base/env.h"
#include "options/options.h"
#include "plan/program_facts.h"

namespace dtrun::launcher {

/// In a program's arguments: the rank's number on its node, as with torchrun.
inline constexpr std::string_view kLocalRankMacro = "${local_rank}";

struct PlannedProgram {
  std::string name;  ///< as the user wrote it; for reports
  int local_ranks = 1;
  bool is_python = false;      ///< the command begins with the interpreter and -u
  base::ChildCommand command;  ///< with the environment that all its ranks share
};

/// All but the environment. @param environment of dtrun
/// @throws Error kUnavailable: there is no GPU, and the ranks are to be as many
PlannedProgram plan_program(const Options& options, const ProgramOptions& program,
                            const base::Environment& environment, const ProgramFacts& facts);

}  // namespace dtrun::launcher
