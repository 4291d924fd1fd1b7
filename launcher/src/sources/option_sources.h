// OptionSources: all places that options come from, in their order: the command line, PET_*,
// DTRUN_*, --config FILE, the user's own file, and what has started dtrun (Slurm, mpirun).
#pragma once

#include <string>
#include <vector>

#include "options/command_line.h"
#include "options/options.h"

namespace dtrun::launcher {

/// Reads, and no more: it opens no connection and waits for nobody. What only the engine itself can
/// say stays open (line.engine.open) until meet_engine() (engine_options.h) has asked for it. For
/// --help, --version and the like only the command line is read.
/// @throws Error kUsage: what cannot be read, and where; kNotFound: no such --config
CommandLine gather_options(const std::vector<std::string>& arguments,
                           const base::Environment& environment);

/// The --log-format of an error about any of these sources. Sources that cannot be read are passed
/// over; the engine is not asked.
LineFormat wished_format(const std::vector<std::string>& arguments,
                         const base::Environment& environment);

/// read_options() of what is gathered; nobody is asked. @param name argv[0] @param arguments
/// without argv[0]
Options parse_options(const std::string& name, const std::vector<std::string>& arguments,
                      const base::Environment& environment);

}  // namespace dtrun::launcher
