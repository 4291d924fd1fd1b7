// Backoff: the pause before the next attempt: each time twice as long, up to a bound, times a
// random factor of 0.5 to 1.5, so that the ranks of a job do not try at the same moments. Not
// thread-safe.
#pragma once

#include <cstdint>
#include <random>

#include "dtrun/base/deadline.h"

namespace dtrun::base {

class Backoff {
 public:
  /// @param seed of the random factors; none: another one in each process and at each time
  Backoff(Deadline::Duration first, Deadline::Duration longest);
  Backoff(Deadline::Duration first, Deadline::Duration longest, std::uint32_t seed);

  /// The length of the next pause.
  Deadline::Duration next();
  /// Blocks for the next pause, or until the deadline.
  void pause(Deadline deadline);
  /// Starts again with the first pause.
  void reset() { length_ = first_; }

 private:
  Deadline::Duration first_;
  Deadline::Duration longest_;
  Deadline::Duration length_;
  std::minstd_rand random_;
};

}  // namespace dtrun::base
