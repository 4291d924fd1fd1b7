// PlannedProgram: one of the programs of a job, and the ranks of each node that run it.
#pragma once

#include <string>

#include "dtrun/base/child_process.h"
#include "dtrun/base/env.h"
#include "options/options.h"

namespace dtrun::launcher {

/// In a program's arguments: the rank's number on its node, as with torchrun.
inline constexpr std::string_view kLocalRankMacro = "${local_rank}";
inline constexpr const char* kVisibleDevices = "CUDA_VISIBLE_DEVICES";

struct PlannedProgram {
  std::string name;  ///< as the user wrote it; for reports
  int local_ranks = 1;
  bool is_python = false;      ///< the command begins with the interpreter and -u
  base::ChildCommand command;  ///< with the environment that all its ranks share
};

/// All but the environment. @param environment of dtrun, in which the program is looked for
/// @throws Error (kUsage, kUnavailable), SpawnError when the program cannot be found or executed
PlannedProgram plan_program(const Options& options, const ProgramOptions& program,
                            base::Environment environment);

}  // namespace dtrun::launcher
