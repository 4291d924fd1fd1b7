#include "connection_count.h"

#include <fmt/core.h>

namespace dtrun::collectives::cpu {

ConnectionCount ConnectionCount::chosen(int connections) {
  return {connections, "DTRUN_CONNECTIONS_PER_PEER or the group's options say so"};
}

ConnectionCount ConnectionCount::of_round_trip(base::Deadline::Duration round_trip) {
  const double milliseconds = std::chrono::duration<double, std::milli>(round_trip).count();
  return {round_trip >= kLongRoundTrip ? kOnLongRoundTrip : 1,
          fmt::format("the least round trip takes {:.3g} ms", milliseconds)};
}

std::string ConnectionCount::to_string() const {
  return fmt::format("{} connection{}: {}", connections, connections == 1 ? "" : "s", why);
}

}  // namespace dtrun::collectives::cpu
