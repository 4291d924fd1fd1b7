// The calling thread's default group: what is meant where no group is given, the world of
// dist::init_process_group().
#pragma once

#include "dtrun/collectives/process_group.h"

namespace dtrun::collectives {

/// @throws Error kUsage where the thread has none
const ProcessGroup& default_group();
bool has_default_group();

/// @param group lives until another one, or none, is set; nullptr: none from now on
void set_default_group(const ProcessGroup* group);

}  // namespace dtrun::collectives
