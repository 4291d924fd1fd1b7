// Move log: a line for each redistribution and its cause, if DTRUN_LOGS or TORCH_LOGS has
// "+dtensor".
#pragma once

#include "move/move_observer.h"

namespace dtrun::dtensor {

/// Costs one comparison of levels if the log is off.
void log_move(const Movement& move);
void log_crossing(const CrossMovement& move);

}  // namespace dtrun::dtensor
