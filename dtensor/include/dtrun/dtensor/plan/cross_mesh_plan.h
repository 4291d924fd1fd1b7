// CrossMeshPlan: from a layout on one mesh to a layout on another, of any shape and ranks: steps on
// the first mesh, messages between its ranks and those of the second (box_messages.h), steps on the
// second. Pure: no communication, no clock.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "dtrun/dtensor/plan/box_messages.h"
#include "dtrun/dtensor/plan/cost.h"
#include "dtrun/dtensor/plan/redistribute_plan.h"

namespace dtrun::dtensor {

struct CrossMeshPlan {
  std::vector<Step> before;  ///< on the first mesh
  Layout given;              ///< that the messages start from
  Layout wanted;             ///< that they lead to
  std::vector<Step> after;   ///< on the second mesh
  PlanCost messages;         ///< of them alone
  PlanCost cost;
};

/// The cheapest of four ways: Partial axes are reduced to whole tensors or to chunks on the first
/// mesh, and Replicate axes are sent to all ranks, or in chunks that the second mesh gathers.
/// @param links one per axis of each mesh; none: shared memory
CrossMeshPlan plan_cross_mesh(const tensors::Shape& global_shape, const PlacedLayout& from,
                              const PlacedLayout& to, std::int64_t item_bytes,
                              std::span<const LinkRate> from_links = {},
                              std::span<const LinkRate> to_links = {});
/// Those of the four that differ, the cheapest first.
std::vector<CrossMeshPlan> cross_mesh_ways(const tensors::Shape& global_shape,
                                           const PlacedLayout& from, const PlacedLayout& to,
                                           std::int64_t item_bytes,
                                           std::span<const LinkRate> from_links = {},
                                           std::span<const LinkRate> to_links = {});

}  // namespace dtrun::dtensor
