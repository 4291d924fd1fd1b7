// ProgramOptions: one program of the job, and what is its own. `dtrun --nproc_per_node=2 ./a :
// --nproc_per_node=1 ./b` has two. Whoever is called torchrun has one, as torchrun has.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "dtrun/base/env.h"
#include "options/called_as.h"
#include "options/command_line.h"

namespace dtrun::launcher {

/// The word between two programs.
inline constexpr const char* kProgramSeparator = ":";

struct ProgramOptions {
  std::string local_ranks = "1";   ///< a number, "cpu", "gpu" or "auto"
  std::vector<std::string> words;  ///< the program and its arguments, verbatim
  // Of the programs after the first one; the first has what the job has.
  std::map<std::string, std::string> variables;  ///< of -x
  std::string folder;                            ///< of --wdir, from the job's folder; empty: that
};

/// A value of --nproc_per_node. @throws Error: a demand() of an OptionBinding
std::string parse_rank_count(const std::string& text);

/// The words of the programs that the line names, and all about those after the first.
/// @param programs has the first one, with its number of ranks
/// @throws Error kUsage: one is missing, or an option after a separator is the job's
void read_programs(CalledAs called_as, CommandLine line, const base::Environment& environment,
                   std::vector<ProgramOptions>& programs);

/// The end of a line that read_programs() reads as these: with the values of their variables, for a
/// dtrun that has another environment.
std::vector<std::string> words_of(const std::vector<ProgramOptions>& programs);

/// What -x gives the ranks. @throws Error kUsage: no name, or not set here
std::map<std::string, std::string> exported_variables(const CommandLine& line,
                                                      const base::Environment& environment);

}  // namespace dtrun::launcher
