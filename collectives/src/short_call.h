// ShortCall: the count and the time of one call that goes a backend's short way, where a
// nanosecond counts: the backend has it counted while it waits for its peers anyway. Lives for the
// call, on its thread.
#pragma once

#include <cstdint>

#include "call_meter.h"
#include "dtrun/collectives/call_timer.h"

namespace dtrun::collectives {

class ShortCall {
 public:
  ShortCall(CallMeter& meter, OpKind kind) : meter_(meter), kind_(kind) {
    // Two looks at the clock take a fifth of the time of a small collective.
    if (meter.timing() == CallTiming::all_calls) [[unlikely]]
      begun_ = Clock::now();
  }

  /// The first time counts.
  void count(std::uint64_t bytes) {
    if (is_counted_) return;
    is_counted_ = true;
    meter_.count(kind_, bytes);
  }
  bool is_counted() const { return is_counted_; }
  /// It waits for a peer, and not for moments only: from now on it is timed, if it was not.
  void wait() {
    if (begun_ == Clock::time_point{}) begun_ = Clock::now();
  }
  void succeed() {
    if (begun_ != Clock::time_point{}) [[unlikely]]
      meter_.add_time(kind_, Clock::now() - begun_);
  }
  void fail() { meter_.add_failure(kind_); }

 private:
  using Clock = CallTimer::Clock;
  CallMeter& meter_;
  const OpKind kind_;
  bool is_counted_ = false;
  Clock::time_point begun_{};
};

}  // namespace dtrun::collectives
