// Backoff: how long to wait before the next attempt: each time twice as long, up to a bound, half
// as much to one and a half times as much by chance, so that a whole job does not knock in step.
// Not thread-safe.
#pragma once

#include <cstdint>
#include <random>

#include "dtrun/base/deadline.h"

namespace dtrun::base {

class Backoff {
 public:
  /// @param seed of the chance; none: another one in each process and at each time
  Backoff(Deadline::Duration first, Deadline::Duration longest);
  Backoff(Deadline::Duration first, Deadline::Duration longest, std::uint32_t seed);

  /// Of the pause that is next.
  Deadline::Duration next();
  /// Blocks as long, or until the deadline.
  void pause(Deadline deadline);
  /// As before the first attempt.
  void reset() { length_ = first_; }

 private:
  Deadline::Duration first_;
  Deadline::Duration longest_;
  Deadline::Duration length_;
  std::minstd_rand random_;
};

}  // namespace dtrun::base
