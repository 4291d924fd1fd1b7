#include "dtrun/collectives/call_timer.h"

#include <utility>

#include "call_meter.h"

namespace dtrun::collectives {

void CallTimer::tell(Outcome outcome) noexcept {
  const std::shared_ptr<CallMeter> meter = std::exchange(meter_, nullptr);
  if (outcome == Outcome::failed) return meter->add_failure(kind_);
  meter->add_time(kind_, Clock::now() - begun_);
}

}  // namespace dtrun::collectives
