// Case: one thing that a launcher is asked to do, the same for torchrun and dtrun.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "facts.h"

namespace dtrun::launcher_conformance {

struct Case {
  std::string name;
  /// The command line of each agent; in it $WORKER is worker.cc with its folder, $SCRIPT script.py
  /// (its folder is to follow as $FOLDER), $PORT a free port.
  std::vector<std::vector<std::string>> agents = {};
  std::map<std::string, std::string> environment = {};
  Numbering numbering = Numbering::kFixed;
  /// The agent is sent this signal once so many ranks have said "up".
  int stop_signal = 0;
  int ranks_up = 0;
  /// For dtrun alone, before the other arguments; the reason stands beside it.
  std::vector<std::string> of_dtrun_alone = {};
};

const std::vector<Case>& cases();

/// A difference by choice: where both values match, it is none. Globs as of fnmatch.
struct Difference {
  std::string of_case;
  std::string fact;
  std::string torchrun;  ///< "-": the fact is not there
  std::string dtrun;
  std::string reason;  ///< stands in docs/torchrun.md, too
};

const std::vector<Difference>& differences();

}  // namespace dtrun::launcher_conformance
