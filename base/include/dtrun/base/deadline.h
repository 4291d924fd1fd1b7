// Deadline: a point on the monotonic clock. Every call that can block takes one; budgets are passed
// down, never restarted. A value; thread-safe as such.
#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace dtrun::base {

class Deadline {
 public:
  using Clock = std::chrono::steady_clock;
  using Duration = std::chrono::nanoseconds;

  static Deadline never() { return Deadline(Clock::time_point::max()); }
  static Deadline after(Duration budget);
  static Deadline at(Clock::time_point when) { return Deadline(when); }

  bool is_never() const { return when_ == Clock::time_point::max(); }
  bool expired() const { return !is_never() && Clock::now() >= when_; }
  /// Time left, at least zero; Duration::max() for never().
  Duration remaining() const;
  /// remaining() rounded up to whole milliseconds for poll(2); -1 for never().
  int poll_timeout_ms() const;
  Clock::time_point when() const { return when_; }
  Deadline earlier(Deadline other) const {
    return Deadline(when_ < other.when_ ? when_ : other.when_);
  }

 private:
  explicit Deadline(Clock::time_point when) : when_(when) {}
  Clock::time_point when_;
};

/// "30 s", "1.5 s", "250 ms", "12 us": for messages.
std::string format_duration(Deadline::Duration duration);

}  // namespace dtrun::base
