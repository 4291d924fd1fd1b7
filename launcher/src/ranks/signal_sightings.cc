#include "ranks/signal_sightings.h"

namespace dtrun::launcher {
namespace {

// An agent that is short of CPU may be later than this process by as much.
constexpr auto kFresh = std::chrono::seconds(2);

}  // namespace

bool SignalSightings::take(int signal, Time now) {
  const auto found = seen_.find(signal);
  if (found == seen_.end()) return false;
  const bool fresh = now - found->second <= kFresh;
  seen_.erase(found);
  return fresh;
}

}  // namespace dtrun::launcher
