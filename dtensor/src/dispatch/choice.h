// Choice: of all combinations of axis rules, the one whose inputs are cheapest to come to. Pure; it
// asks the planner that also runs the redistribution.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "dispatch/axis_rule.h"
#include "dtrun/dtensor/plan/redistribute_plan.h"

namespace dtrun::dtensor::sharding {

/// Into how many parts the ranks of the mesh have cut it.
std::int64_t parts_of(const Layout& layout, const std::vector<int>& mesh_shape);

struct Choice {
  std::vector<Layout> inputs;
  Layout output;
};

/// Branch and bound over the axes. It stops after 64 complete combinations, of which the
/// most promising come first, so that many axes do not take forever.
/// @param layouts what the operands are now, one per operand
/// @param rules one of them is that all is Replicate; earlier ones win where costs are equal
/// @param links of the mesh, as CostModel's
Choice cheapest_choice(const Operation& operation, const std::vector<AxisRule>& rules,
                       const std::vector<int>& mesh_shape, const std::vector<Layout>& layouts,
                       std::span<const LinkRate> links = {});

/// The rule of each axis that a choice is made of.
std::vector<std::size_t> rules_of(const Choice& choice, const std::vector<AxisRule>& rules);

/// What a call costs with a rule told for every axis, as the choice weighs it.
PlanCost cost_of_rules(const Operation& operation, const std::vector<AxisRule>& rules,
                       const std::vector<std::size_t>& rule_of_axis,
                       const std::vector<int>& mesh_shape, const std::vector<Layout>& layouts,
                       std::span<const LinkRate> links = {});
/// Whether a choice tries the rule along that axis: one that cuts operands is tried where one is
/// cut there already, and one with Partial operands where one is just that.
bool is_tried(const Operation& operation, const std::vector<AxisRule>& rules, std::size_t rule,
              std::size_t axis, const std::vector<int>& mesh_shape,
              const std::vector<Layout>& layouts);

}  // namespace dtrun::dtensor::sharding
