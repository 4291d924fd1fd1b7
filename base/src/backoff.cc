#include "dtrun/base/backoff.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>

namespace dtrun::base {

Backoff::Backoff(Deadline::Duration first, Deadline::Duration longest)
    : Backoff(first, longest,
              static_cast<std::uint32_t>(::getpid()) ^
                  static_cast<std::uint32_t>(Deadline::Clock::now().time_since_epoch().count())) {}

Backoff::Backoff(Deadline::Duration first, Deadline::Duration longest, std::uint32_t seed)
    : first_(first), longest_(longest), length_(first), random_(seed) {}

Deadline::Duration Backoff::next() {
  std::uniform_int_distribution<std::int64_t> chance(0, length_.count());
  const Deadline::Duration jittered = length_ / 2 + Deadline::Duration(chance(random_));
  length_ = std::min(length_ * 2, longest_);
  return jittered;
}

void Backoff::pause(Deadline deadline) {
  ::poll(nullptr, 0, Deadline::after(next()).earlier(deadline).poll_timeout_ms());
}

}  // namespace dtrun::base
