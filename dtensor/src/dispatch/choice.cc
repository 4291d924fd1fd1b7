// Costs compare collectives first, then elements. A result that becomes Partial is charged the
// elements (not the collective) of the reduction that it puts off, so that a free choice of inputs
// wins, and of two that are not free the one that moves less in the end.
#include "dispatch/choice.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "dtrun/base/check.h"

namespace dtrun::dtensor::sharding {
namespace {

class Chooser {
 public:
  Chooser(const Operation& operation, const std::vector<int>& mesh_shape,
          const std::vector<Layout>& layouts)
      : operation_(operation), mesh_shape_(mesh_shape), layouts_(layouts), costs_(layouts.size()) {}

  Choice run(const std::vector<AxisRule>& rules) {
    std::vector<std::vector<const AxisRule*>> candidates;
    for (std::size_t axis = 0; axis < mesh_shape_.size(); ++axis) {
      candidates.emplace_back();
      for (const AxisRule& rule : rules) {
        if (is_sensible(rule, axis)) candidates.back().push_back(&rule);
      }
    }
    std::vector<const AxisRule*> picked(mesh_shape_.size());
    pick(candidates, 0, picked);
    DT_CHECK(best_.has_value());
    return std::move(*best_);
  }

 private:
  /// A cut is worth trying where an operand has one already; Partial where an operand is just that
  /// and none would have to be padded to it.
  bool is_sensible(const AxisRule& rule, std::size_t axis) const {
    bool any_cut = false;
    bool any_partial = false;
    for (std::size_t i = 0; i < layouts_.size(); ++i) {
      const Placement& now = layouts_[i].placements[axis];
      any_cut = any_cut || now.is_shard();
      any_partial = any_partial || (rule.inputs[i].is_partial() && now == rule.inputs[i]);
      if (rule.inputs[i].is_partial() && now.is_shard()) return false;
    }
    const auto is_cut = [](const Placement& placement) { return placement.is_shard(); };
    const auto is_partial = [](const Placement& placement) { return placement.is_partial(); };
    if (std::ranges::any_of(rule.inputs, is_cut)) return any_cut;
    return any_partial || std::ranges::none_of(rule.inputs, is_partial);
  }

  void pick(const std::vector<std::vector<const AxisRule*>>& candidates, std::size_t axis,
            std::vector<const AxisRule*>& picked) {
    if (axis == candidates.size()) return weigh(picked);
    for (const AxisRule* rule : candidates[axis]) {
      picked[axis] = rule;
      pick(candidates, axis + 1, picked);
    }
  }

  /// Axes that cut the same index do so in one order for all: the default one, or that of an
  /// operand as it stands.
  void weigh(const std::vector<const AxisRule*>& picked) {
    Choice choice;
    for (std::size_t i = 0; i < layouts_.size(); ++i) {
      Layout& input = choice.inputs.emplace_back();
      for (const AxisRule* rule : picked) input.placements.push_back(rule->inputs[i]);
      input.order = default_shard_order(input.placements);
    }
    for (const AxisRule* rule : picked) choice.output.placements.push_back(rule->output);
    choice.output.order = default_shard_order(choice.output.placements);
    weigh(choice, picked);
    for (std::size_t i = 0; i < layouts_.size(); ++i) {
      Choice ordered = choice;
      follow_order(i, ordered);
      if (ordered.inputs != choice.inputs) weigh(ordered, picked);
    }
  }

  /// Takes over the order in which operand `leader` is cut now, wherever the same axes cut it.
  void follow_order(std::size_t leader, Choice& choice) const {
    for (const auto& [dim, axes] : layouts_[leader].order) {
      const auto found = choice.inputs[leader].order.find(dim);
      if (found == choice.inputs[leader].order.end() ||
          !std::ranges::is_permutation(found->second, axes)) {
        continue;
      }
      for (Layout& layout : choice.inputs) set_order(layout, axes);
      set_order(choice.output, axes);
    }
  }
  static void set_order(Layout& layout, const std::vector<int>& axes) {
    const Placement& placement = layout.placements[static_cast<std::size_t>(axes[0])];
    if (placement.is_shard()) layout.order[placement.dim()] = axes;
  }

  void weigh(const Choice& choice, const std::vector<const AxisRule*>& picked) {
    PlanCost cost;
    for (std::size_t i = 0; i < layouts_.size(); ++i) cost += cost_of(i, choice.inputs[i]);
    for (std::size_t axis = 0; axis < picked.size(); ++axis) {
      cost.elements += put_off(*picked[axis], axis, choice.output);
    }
    if (best_ && !(cost < best_cost_)) return;
    best_ = choice;
    best_cost_ = cost;
  }

  /// The elements of the reduction that a result needs that is Partial where no operand was.
  double put_off(const AxisRule& rule, std::size_t axis, const Layout& output) const {
    if (!rule.output.is_partial()) return 0;
    for (const Layout& layout : layouts_) {
      if (layout.placements[axis].is_partial()) return 0;
    }
    Layout reduced = output;
    reduced.placements[axis] = Replicate();
    const Step step{StepKind::all_reduce, static_cast<int>(axis), output, reduced};
    return plan_cost(operation_.output_shape, mesh_shape_, {step}).elements;
  }

  PlanCost cost_of(std::size_t operand, const Layout& to) {
    for (const auto& [known, cost] : costs_[operand]) {
      if (known == to) return cost;
    }
    const tensors::Shape& shape = operation_.inputs[operand].shape;
    const PlanCost cost =
        plan_cost(shape, mesh_shape_, plan_redistribute(shape, mesh_shape_, layouts_[operand], to));
    costs_[operand].emplace_back(to, cost);
    return cost;
  }

  const Operation& operation_;
  const std::vector<int>& mesh_shape_;
  const std::vector<Layout>& layouts_;
  std::vector<std::vector<std::pair<Layout, PlanCost>>> costs_;
  std::optional<Choice> best_;
  PlanCost best_cost_;
};

}  // namespace

Choice cheapest_choice(const Operation& operation, const std::vector<AxisRule>& rules,
                       const std::vector<int>& mesh_shape, const std::vector<Layout>& layouts) {
  return Chooser(operation, mesh_shape, layouts).run(rules);
}

}  // namespace dtrun::dtensor::sharding
