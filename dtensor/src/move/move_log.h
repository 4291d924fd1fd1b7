// Move log: a line for each redistribution, for each operator that moves elements otherwise, and
// for what layers around modules send, with its cause, if DTRUN_LOGS or TORCH_LOGS has "+dtensor".
#pragma once

#include "dtrun/base/log.h"
#include "dtrun/collectives/call_observer.h"
#include "move/move_observer.h"

namespace dtrun::dtensor {

void write_move(const Movement& move);
void write_crossing(const CrossMovement& move);
void write_blocks(const BlockMovement& move);
/// That a layer around modules asked a group for.
void write_call(const collectives::ObservedCall& call);

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
