// What the transports have carried for this rank, as they count it themselves.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include "dtrun/collectives/process_group.h"
#include "dtrun/dtensor/mesh/device_mesh.h"
#include "mesh/mesh_body.h"

namespace dtrun::dtensor {

inline std::int64_t bytes_carried(const ProcessGroup& group) {
  const collectives::TransportCounters counters = group.counters();
  return static_cast<std::int64_t>(counters.shared_memory_bytes_sent + counters.tcp_bytes_sent);
}

/// For the groups of a mesh, those of several axes among them; 0 outside of it.
inline std::int64_t bytes_carried(const DeviceMesh& mesh) {
  if (!mesh.has_this_rank()) return 0;
  std::int64_t bytes = 0;
  for (const ProcessGroup& line : mesh.all_groups()) bytes += bytes_carried(line);
  for (unsigned axes = 0; axes < 1U << mesh.ndim(); ++axes) {
    if (std::popcount(axes) < 2) continue;
    std::vector<int> list;
    bool is_told_already = false;  // with an axis of one rank it is the group without it
    for (int axis = 0; axis < mesh.ndim(); ++axis) {
      if ((axes >> axis & 1U) == 0) continue;
      list.push_back(axis);
      is_told_already |= mesh.size(axis) == 1;
    }
    if (!is_told_already) bytes += bytes_carried(group_along(*mesh.body(), list));
  }
  return bytes;
}

}  // namespace dtrun::dtensor
