// Traffic: the exact number of bytes that a rank sends and receives in a step of a plan. A byte
// counts once for each rank that needs it, however the transport passes it on (a ring, a buffer in
// shared memory). Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "dtrun/dtensor/plan/redistribute_plan.h"

namespace dtrun::dtensor {

struct Traffic {
  std::int64_t sent = 0;
  std::int64_t received = 0;
  Traffic& operator+=(const Traffic& other) {
    sent += other.sent;
    received += other.received;
    return *this;
  }
  friend bool operator==(const Traffic&, const Traffic&) = default;
};

/// Of the rank at `coordinate`, for each of the steps.
std::vector<Traffic> plan_traffic(const tensors::Shape& global_shape,
                                  const std::vector<int>& mesh_shape,
                                  const std::vector<Step>& steps,
                                  const std::vector<int>& coordinate, std::int64_t item_bytes);

/// For all ranks. It looks at every distinct coordinate: microseconds for a thousand.
struct MeshTraffic {
  Traffic busiest;         ///< of the whole plan, of the rank that sends most
  std::int64_t total = 0;  ///< that all ranks send
};
MeshTraffic mesh_traffic(const tensors::Shape& global_shape, const std::vector<int>& mesh_shape,
                         const std::vector<Step>& steps, std::int64_t item_bytes);

}  // namespace dtrun::dtensor
