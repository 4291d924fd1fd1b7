// CaseRun: a case, run with torchrun or with dtrun, and what was seen of it.
#pragma once

#include <string>
#include <vector>

#include "cases.h"

namespace dtrun::launcher_conformance {

struct Launcher {
  std::vector<std::string> command;
  // torchrun names the script where this is its own interpreter, and the interpreter otherwise.
  std::string python = "/usr/bin/python3";
  bool is_dtrun = false;
};

Facts run_case(const Case& a_case, const Launcher& launcher);

}  // namespace dtrun::launcher_conformance
