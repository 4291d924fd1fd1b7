// ProgramFacts: what of this machine decides how one of the job's programs runs: where it is, and
// how many ranks the machine has room for.
#pragma once

#include <optional>
#include <string>

#include "dtrun/base/env.h"
#include "options/options.h"

namespace dtrun::launcher {

struct ProgramFacts {
  int gpus = 0;          ///< that its ranks would see; counted for --nproc_per_node=gpu and auto
  int cpus = 0;          ///< that this process may use; counted for cpu, and for auto without GPUs
  std::string folder{};  ///< that it works in, absolute; empty: dtrun's own
  /// It is a file that cannot be executed. Looked at under torchrun's name.
  bool is_data_file = false;
  std::string path{};  ///< of the program, or of the interpreter that runs it
  /// Of presents_store_token(). Looked at where that decides.
  bool presents_store_token = false;
};

/// In the environment of dtrun, with what -x sets for this program. Pure.
std::optional<std::string> variable_of(const ProgramOptions& program,
                                       const base::Environment& environment,
                                       const std::string& name);

/// Whether the interpreter runs the program: the user says so, or its name does. Under torchrun's
/// name, which takes every file for a Python program, one that cannot be executed is one. Pure.
bool runs_in_python(const Options& options, const std::string& name, bool is_data_file);

/// PYTHON_EXEC, or python3. Pure.
std::string interpreter_of(const ProgramOptions& program, const base::Environment& environment);

/// All but whether it presents the store's token.
/// @param environment of dtrun
/// @throws Error kUsage: no such folder; SpawnError when the program cannot be found or executed
ProgramFacts look_at_program(const Options& options, const ProgramOptions& program,
                             const base::Environment& environment);

}  // namespace dtrun::launcher
