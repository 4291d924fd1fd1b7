#include "ranks/last_operations.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>

#include "dtrun/base/deadline.h"
#include "dtrun/rendezvous/flight_explanation.h"

namespace dtrun::launcher {
namespace {

constexpr std::size_t kTold = 5;

std::string time_between(double from, double to) {
  return base::format_duration(std::chrono::milliseconds(
      std::max(std::int64_t{0}, static_cast<std::int64_t>((to - from) * 1000))));
}

std::string how_it_went(const rendezvous::FlightOperation& operation, double ended) {
  if (!operation.ended || operation.state == rendezvous::FlightState::running) {
    std::string text = operation.started > 0
                           ? " had run for " + time_between(operation.started, ended)
                           : std::string(" had begun");
    if (operation.waiting_for >= 0)
      text += fmt::format(", waited for rank {}", operation.waiting_for);
    return text;
  }
  return fmt::format(" {} {} before",
                     operation.state == rendezvous::FlightState::failed ? "failed" : "ended",
                     time_between(*operation.ended, ended));
}

}  // namespace

std::string last_operations(const rendezvous::RankFlight& flight, double ended) {
  const std::size_t count = flight.operations.size();
  std::string text;
  for (std::size_t i = count - std::min(kTold, count); i < count; ++i)
    text += fmt::format("{}{}{}", text.empty() ? "" : "\n", describe(flight.operations[i]),
                        how_it_went(flight.operations[i], ended));
  return text;
}

}  // namespace dtrun::launcher
