// What a child of a worker shall not see of its parent's environment. A child is no worker of the
// launcher's: it must not take its parent's place in the job page, and where the program has
// chosen another address for the store than the launcher's, nobody serves it there yet.
#pragma once

#include <string>
#include <vector>

#include "dtrun/base/env.h"

namespace dtrun::mp {

/// Names of variables that must go. Pure.
/// @param at_start the environment that this process was started with
std::vector<std::string> variables_to_hide(const base::Environment& at_start,
                                           const base::Environment& now);

/// This process's environment without them.
base::Environment child_environment();

/// In a copy of the parent: removes them from the environment.
void hide_variables();

}  // namespace dtrun::mp
