// How much memory a rank needs for a plan: its part before, which the program still has, what the
// steps and messages make and take on their way, and its part after. Exact for parts without gaps
// in memory. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "dtrun/dtensor/plan/cross_mesh_plan.h"
#include "dtrun/dtensor/plan/redistribute_plan.h"

namespace dtrun::dtensor {

/// In bytes.
struct PlanMemory {
  std::int64_t before = 0;
  std::int64_t after = 0;
  std::int64_t peak = 0;  ///< at once, those of `before` among them
  friend bool operator==(const PlanMemory&, const PlanMemory&) = default;
};

/// Of the rank at `coordinate`. @param from before the first step; without steps also after it
PlanMemory plan_memory(const tensors::Shape& global_shape, const std::vector<int>& mesh_shape,
                       const Layout& from, const std::vector<Step>& steps,
                       const std::vector<int>& coordinate, std::int64_t item_bytes);

/// Between device types elements go over the host: where its memory has an image of a rank's part.
enum class HostImages : std::uint8_t {
  none,    ///< both meshes have one device type
  before,  ///< of what the messages start from
  after,   ///< of what they lead to
};

/// Of a move to another mesh, on whatever devices.
/// @param plan of plan_cross_mesh() for both
/// @param rank in the numbering of both meshes' ranks; of neither mesh: it needs no memory
PlanMemory crossing_memory(const tensors::Shape& global_shape, const PlacedLayout& from,
                           const PlacedLayout& to, const CrossMeshPlan& plan, HostImages images,
                           int rank, std::int64_t item_bytes);

}  // namespace dtrun::dtensor
