// The cost of one step, and of what it moves.
#pragma once

#include <vector>

#include "dtrun/dtensor/plan/redistribute_plan.h"

namespace dtrun::dtensor {

/// Seconds of a step without communication, so that fewer are better.
inline constexpr double kLocalStep = 1e-7;

/// Of the fullest rank.
tensors::Shape fullest_shape(const tensors::Shape& global_shape,
                             const std::vector<int>& mesh_shape, const Layout& layout);
/// Elements of the fullest rank.
double fullest_elements(const tensors::Shape& global_shape, const std::vector<int>& mesh_shape,
                        const Layout& layout);

/// Of all kinds but an exchange. @param before, after elements of the fullest rank
PlanCost step_cost(StepKind kind, int axis_size, double before, double after,
                   std::int64_t item_bytes, const LinkRate& link);

}  // namespace dtrun::dtensor
