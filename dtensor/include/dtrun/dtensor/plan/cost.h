// The cost in seconds of moving data over a mesh: a latency for each collective, plus the bytes
// that the busiest rank sends or receives divided by the rate of the axis. Estimates that are good
// enough to compare plans. All ranks of a mesh must plan with the same ones.
#pragma once

#include <compare>
#include <cstdint>
#include <span>

namespace dtrun::dtensor {

/// Of the ranks along one axis.
struct LinkRate {
  double latency;           ///< seconds until a collective of few bytes is over
  double bytes_per_second;  ///< that each rank sends at the same time
  friend bool operator==(const LinkRate&, const LinkRate&) = default;
};

/// Defaults by kind of link: measured for shared memory (docs/benchmarks.md, 16 MiB), otherwise
/// from data sheets.
inline constexpr LinkRate kSharedMemoryLink{3e-6, 4e9};
inline constexpr LinkRate kDeviceLink{1.2e-5, 1e11};
/// Between machines: TCP over 10 Gbit/s.
inline constexpr LinkRate kNetworkLink{5e-5, 1.1e9};

/// Borrows the links.
struct CostModel {
  std::int64_t item_bytes = 4;
  std::span<const LinkRate> links = {};  ///< one per axis; none: shared memory everywhere

  const LinkRate& link(std::size_t axis) const {
    return links.empty() ? kSharedMemoryLink : links[axis];
  }
};

/// Compared by seconds first.
struct PlanCost {
  double seconds = 0;
  int collectives = 0;
  PlanCost& operator+=(const PlanCost& other) {
    seconds += other.seconds;
    collectives += other.collectives;
    return *this;
  }
  friend auto operator<=>(const PlanCost&, const PlanCost&) = default;
};

}  // namespace dtrun::dtensor
