// Choice: of all combinations of axis rules, the one whose inputs are cheapest to come to. Pure; it
// asks the planner that also runs the redistribution.
#pragma once

#include <vector>

#include "dispatch/axis_rule.h"
#include "dtrun/dtensor/plan/redistribute_plan.h"

namespace dtrun::dtensor::sharding {

struct Choice {
  std::vector<Layout> inputs;
  Layout output;
};

/// @param layouts what the operands are now, one per operand
/// @param rules one of them is that all is Replicate; earlier ones win where costs are equal
Choice cheapest_choice(const Operation& operation, const std::vector<AxisRule>& rules,
                       const std::vector<int>& mesh_shape, const std::vector<Layout>& layouts);

}  // namespace dtrun::dtensor::sharding
