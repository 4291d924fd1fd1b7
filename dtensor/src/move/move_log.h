// Move log: a line for each redistribution that is run, with its cause, where DTRUN_LOGS or
// TORCH_LOGS has "+dtensor".
#pragma once

#include "move/move_observer.h"

namespace dtrun::dtensor {

/// Costs a look at a level where nobody wants it.
void log_move(const Movement& move);
void log_crossing(const CrossMovement& move);

}  // namespace dtrun::dtensor
