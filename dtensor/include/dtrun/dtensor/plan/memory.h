// How much memory a rank needs for a plan: its part before, which the program still has, what the
// steps make and take on their way, and its part after. Exact for parts without gaps in memory.
// Pure.
#pragma once

#include <cstdint>
#include <vector>

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

}  // namespace dtrun::dtensor
