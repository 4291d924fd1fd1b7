// ConnectionCount: how many TCP connections share a large message to a peer, and why. A value.
#pragma once

#include <chrono>
#include <string>

#include "dtrun/base/deadline.h"

namespace dtrun::collectives::cpu {

struct ConnectionCount {
  /// A connection has no more bytes on the way than the kernel's buffers hold, some megabytes. With
  /// such a round trip that is less than a fast link carries; docs/benchmarks.md has the figures.
  static constexpr base::Deadline::Duration kLongRoundTrip = std::chrono::milliseconds(10);
  static constexpr int kOnLongRoundTrip = 4;

  int connections = 1;
  std::string why;

  static ConnectionCount chosen(int connections);
  static ConnectionCount of_round_trip(base::Deadline::Duration round_trip);
  /// "4 connections: the least round trip takes 41 ms".
  std::string to_string() const;
};

}  // namespace dtrun::collectives::cpu
