// Move log: a line for each redistribution, and for each operator that moves elements otherwise,
// with its cause, if DTRUN_LOGS or TORCH_LOGS has "+dtensor".
#pragma once

#include "dtrun/base/log.h"
#include "move/move_observer.h"

namespace dtrun::dtensor {

void write_move(const Movement& move);
void write_crossing(const CrossMovement& move);
void write_blocks(const BlockMovement& move);

inline bool are_moves_logged() {
  return base::log::enabled(base::log::Component::kDtensor, base::log::Level::kDebug);
}
/// Costs one comparison of levels if the log is off.
inline void log_move(const Movement& move) {
  if (are_moves_logged()) [[unlikely]]
    write_move(move);
}
inline void log_crossing(const CrossMovement& move) {
  if (are_moves_logged()) [[unlikely]]
    write_crossing(move);
}
inline void log_blocks(const BlockMovement& move) {
  if (are_moves_logged()) [[unlikely]]
    write_blocks(move);
}

}  // namespace dtrun::dtensor
