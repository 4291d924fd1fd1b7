// The plan of a line of words, on the machine that the tests run on.
#pragma once

#include <string>
#include <vector>

#include "plan/launch_plan.h"
#include "sources/option_sources.h"

namespace dtrun::launcher {

inline LaunchPlan plan_here(const std::vector<std::string>& words,
                            const base::Environment& environment) {
  const Options options = parse_options("dtrun", words, environment);
  return make_plan(options, environment, look_at_machine(options, environment));
}

}  // namespace dtrun::launcher
