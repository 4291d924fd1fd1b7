// CallTimer: the clock of one call of a group. It travels with the Call; the backend ends it when
// the operation is over. A call whose timer is dropped before has failed.
#pragma once

#include <chrono>
#include <memory>
#include <utility>

#include "dtrun/collectives/fingerprint.h"

namespace dtrun::collectives {

class CallMeter;

class CallTimer {
 public:
  using Clock = std::chrono::steady_clock;
  enum class Outcome { done, failed };

  CallTimer() = default;  ///< of a call that nobody times
  CallTimer(std::shared_ptr<CallMeter> meter, OpKind kind)
      : meter_(std::move(meter)), kind_(kind), begun_(Clock::now()) {}

  CallTimer(CallTimer&&) = default;
  CallTimer& operator=(CallTimer&& other) noexcept {
    end(Outcome::failed);
    meter_ = std::move(other.meter_);
    kind_ = other.kind_;
    begun_ = other.begun_;
    return *this;
  }
  ~CallTimer() { end(Outcome::failed); }

  /// The first end counts. On any thread.
  void end(Outcome outcome) noexcept {
    if (meter_) tell(outcome);
  }

 private:
  void tell(Outcome outcome) noexcept;

  std::shared_ptr<CallMeter> meter_;
  OpKind kind_ = OpKind::none;
  Clock::time_point begun_{};
};

}  // namespace dtrun::collectives
