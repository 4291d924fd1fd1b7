// How long a store gets for what it can answer without waiting for anybody.
#pragma once

#include <algorithm>

#include "dtrun/base/deadline.h"

namespace dtrun::rendezvous {

/// To end a wait properly, to find out more for an error's text, and to do at a deadline what needs
/// nobody else: a deadline that has passed does not mean that the store is stopped.
inline constexpr base::Deadline::Duration kCourtesyBudget = std::chrono::seconds(1);

inline base::Deadline answer_deadline(base::Deadline deadline) {
  if (deadline.is_never()) return deadline;
  return base::Deadline::after(std::max(deadline.remaining(), kCourtesyBudget));
}

}  // namespace dtrun::rendezvous
