// The clock of the state machines, as those who drive them read it.
#pragma once

#include "dtrun/base/deadline.h"
#include "dtrun/rendezvous/round_messages.h"

namespace dtrun::rendezvous::rounds {

/// Monotonic; setting the time of day does not touch it.
inline Moment read_clock() {
  return base::Deadline::Clock::now().time_since_epoch();
}

inline base::Deadline deadline_at(Moment moment) {
  if (moment == Moment::max()) return base::Deadline::never();
  return base::Deadline::at(base::Deadline::Clock::time_point(moment));
}

}  // namespace dtrun::rendezvous::rounds
