#include "dtrun/base/deadline.h"

#include <fmt/core.h>

#include <climits>

namespace dtrun::base {

Deadline Deadline::after(Duration budget) {
  const auto now = Clock::now();
  if (budget >= Clock::time_point::max() - now) return never();
  return Deadline(now + budget);
}

Deadline::Duration Deadline::remaining() const {
  if (is_never()) return Duration::max();
  const auto left = when_ - Clock::now();
  return left > Duration::zero() ? left : Duration::zero();
}

int Deadline::poll_timeout_ms() const {
  if (is_never()) return -1;
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(remaining()).count();
  return ms > INT_MAX ? INT_MAX : static_cast<int>(ms);
}

std::string format_duration(Deadline::Duration duration) {
  const double seconds = std::chrono::duration<double>(duration).count();
  if (seconds >= 1) return fmt::format("{:.3g} s", seconds);
  if (seconds >= 1e-3) return fmt::format("{:.3g} ms", seconds * 1e3);
  return fmt::format("{:.3g} us", seconds * 1e6);
}

}  // namespace dtrun::base
