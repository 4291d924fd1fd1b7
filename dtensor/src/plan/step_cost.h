// The cost of one step, and of what it moves.
#pragma once

#include <vector>

#include "dtrun/dtensor/plan/redistribute_plan.h"

namespace dtrun::dtensor {

/// Elements of the fullest rank, the one at the origin.
double fullest_elements(const tensors::Shape& global_shape, const std::vector<int>& mesh_shape,
                        const Layout& layout);

/// @param before, after elements of the fullest rank
PlanCost step_cost(StepKind kind, int axis_size, double before, double after,
                   std::int64_t item_bytes, const LinkRate& link);

}  // namespace dtrun::dtensor
