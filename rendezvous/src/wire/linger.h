// Linger: whether a server that has answered stays awake for what comes next. A client that asks
// again as soon as it has its answer pays for two wake-ups each time, its own and the server's,
// which on two cores are nearly all of a round trip; a server that is still awake saves it one.
// That must pay: only between requests that follow each other closely, only for kLongest, and after
// each time in vain not for twice as many requests as before. Pure; not thread-safe.
#pragma once

#include <algorithm>
#include <chrono>

namespace dtrun::rendezvous {

class Linger {
 public:
  using Time = std::chrono::steady_clock::time_point;

  static constexpr auto kLongest = std::chrono::microseconds(50);
  /// The time that a client takes to ask again, with both wake-ups.
  static constexpr auto kClose = std::chrono::microseconds(100);
  /// Before others of the same loop have their turn.
  static constexpr auto kLongestTurn = std::chrono::milliseconds(1);
  static constexpr int kMostSkipped = 1024;

  /// A request has ended the server's sleep.
  void wake(Time now) {
    woken_ = now;
    awake_ = now - asleep_ < kClose;
    if (awake_ && skip_ > 0) {
      --skip_;
      awake_ = false;
    }
  }

  /// Whether to look once more for what comes next; all that was there is answered since
  /// `answered`.
  bool goes_on(Time answered, Time now) {
    if (!awake_ || now - woken_ > kLongestTurn) return false;
    if (now - answered < kLongest) return true;
    skip_ = penalty_;
    penalty_ = std::min(2 * penalty_, kMostSkipped);
    return false;
  }

  /// It came while the server was awake for it.
  void paid() { penalty_ = 1; }

  void rest(Time now) { asleep_ = now; }

 private:
  Time asleep_{}, woken_{};
  bool awake_ = false;
  int skip_ = 0, penalty_ = 1;
};

}  // namespace dtrun::rendezvous
