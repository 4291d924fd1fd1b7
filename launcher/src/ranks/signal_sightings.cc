#include "ranks/signal_sightings.h"

namespace dtrun::launcher {
namespace {

// An agent that is short of CPU may be later than this process by as much.
constexpr auto kFresh = std::chrono::seconds(2);

}  // namespace

bool SignalSightings::take(int signal, Time now) {
  const bool fresh = has(signal, now);
  seen_.erase(signal);
  return fresh;
}

bool SignalSightings::has(int signal, Time now) const {
  const auto found = seen_.find(signal);
  return found != seen_.end() && now - found->second <= kFresh;
}

}  // namespace dtrun::launcher
