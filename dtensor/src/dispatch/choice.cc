// A result that becomes Partial is charged the bytes (not the latency) of the reduction that it
// puts off, less those of the operand that is Partial already, so that a free choice of inputs wins
// where the result is not far larger, and of two that are not free the one that moves less in the
// end. An operation that is weighed both ways is charged what is known of the rest: the
// way of its result to where it is wished, that of the gradients, that of operands which backward
// brings again, and the work that ranks do twice.
// Of its ways whose times differ by less than a fifth, the one with fewer collectives is taken: the
// model of time is no closer, and each collective has ranks wait for each other.
#include "dispatch/choice.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "dtrun/base/check.h"
#include "plan/quick_plan.h"

namespace dtrun::dtensor::sharding {
namespace {

constexpr int kMostWeighed = 64;
constexpr double kAlike = 1.2;  ///< times whose ratio is smaller
/// What a rank computes while it sends a byte: 64 GFLOP/s beside shared memory.
constexpr double kWorkPerByte = 16;

class Chooser {
 public:
  Chooser(const Operation& operation, const std::vector<AxisRule>& rules,
          const std::vector<int>& mesh_shape, const std::vector<Layout>& layouts,
          std::span<const LinkRate> links)
      : operation_(operation),
        rules_(rules),
        mesh_shape_(mesh_shape),
        layouts_(layouts),
        links_(links),
        known_(layouts.size()) {
    for (const int size : mesh_shape) ranks_ *= size;
    is_ragged_ = std::ranges::any_of(layouts, [](const Layout& l) { return l.is_ragged(); });
  }

  Choice run() {
    for (std::size_t axis = 0; axis < mesh_shape_.size(); ++axis) list_candidates(axis);
    // What the axes from here on cost at the least.
    least_.assign(mesh_shape_.size() + 1, 0);
    for (std::size_t axis = mesh_shape_.size(); axis-- > 0;) {
      least_[axis] = least_[axis + 1] + candidates_[axis].front().bound;
    }
    picked_.resize(mesh_shape_.size());
    pick(0, 0);
    return std::move(best().choice);
  }

  /// Of one combination, in the better of its orders.
  PlanCost cost_of_picked(const std::vector<std::size_t>& rule_of_axis) {
    picked_ = rule_of_axis;
    weigh_picked();
    return weighed_.empty() ? PlanCost{std::numeric_limits<double>::infinity(), 0} : best().cost;
  }

  /// A rule that cuts is worth trying where an operand is cut already. A rule that does not, and
  /// wants Partial: where an operand is just that, and none is cut, which would have to be padded.
  bool is_sensible(const AxisRule& rule, std::size_t axis) const {
    bool any_cut = false;
    bool any_partial = false;
    bool any_padded = false;
    for (std::size_t i = 0; i < layouts_.size(); ++i) {
      const bool is_cut = layouts_[i].is_shard(axis);
      any_cut = any_cut || is_cut;
      if (!rule.inputs[i].is_partial()) continue;
      any_padded = any_padded || is_cut;
      any_partial = any_partial || layouts_[i][axis] == rule.inputs[i];
    }
    const auto is_cut = [](const Placement& placement) { return placement.is_shard(); };
    const auto is_partial = [](const Placement& placement) { return placement.is_partial(); };
    if (const Cut* const cut = cut_of(rule)) return any_is_cut_so(*cut, axis);
    if (std::ranges::any_of(rule.inputs, is_cut)) return any_cut;
    return std::ranges::none_of(rule.inputs, is_partial) || (any_partial && !any_padded);
  }

 private:
  struct Candidate {
    std::size_t rule;
    double bound;  ///< seconds that it costs at the least
  };

  void list_candidates(std::size_t axis) {
    std::vector<Candidate>& candidates = candidates_.emplace_back();
    for (std::size_t rule = 0; rule < rules_.size(); ++rule) {
      if (is_sensible(rules_[rule], axis)) candidates.push_back({rule, bound_of(rule, axis)});
    }
    std::ranges::stable_sort(candidates, {}, &Candidate::bound);
  }

  /// Null unless it is ragged.
  static const Cut* cut_of(const AxisRule& rule) {
    for (const Placement& input : rule.inputs) {
      if (input.is_ragged()) return input.cut();
    }
    return rule.output.cut();
  }
  bool any_is_cut_so(const Cut& cut, std::size_t axis) const {
    return std::ranges::any_of(layouts_, [&](const Layout& layout) {
      return layout.is_ragged(axis) && &layout.cut(axis) == &cut;
    });
  }

  /// A collective for every operand that has to give up what it is there, of no more bytes than
  /// there are where all axes cut.
  double bound_of(std::size_t rule, std::size_t axis) const {
    if (mesh_shape_[axis] == 1) return 0;
    const CostModel costs = costs_of(tensors::DType::f32);
    double seconds = 0;
    for (std::size_t i = 0; i < layouts_.size(); ++i) {
      const Placement& wanted = rules_[rule].inputs[i];
      if (layouts_[i].is_replicate(axis) || wanted.is_partial()) continue;
      if (layouts_[i][axis] == wanted) continue;
      const Operand& operand = operation_.inputs[i];
      const double bytes = static_cast<double>(tensors::numel(operand.shape)) *
                           static_cast<double>(tensors::item_size(operand.dtype)) / ranks_;
      seconds += costs.link(axis).latency + bytes * (mesh_shape_[axis] - 1) / mesh_shape_[axis] /
                                                costs.link(axis).bytes_per_second;
    }
    return seconds;
  }

  void pick(std::size_t axis, double bound) {
    if (!weighed_.empty() &&
        (tried_ >= kMostWeighed || bound + least_[axis] > least_seconds_ * tolerance()))
      return;
    if (axis == candidates_.size()) return weigh_picked();
    for (const Candidate& candidate : candidates_[axis]) {
      picked_[axis] = candidate.rule;
      pick(axis + 1, bound + candidate.bound);
    }
  }

  /// Axes that cut the same index do so in one order for all: the ascending one, or that of an
  /// operand as it stands.
  void weigh_picked() {
    ++tried_;
    if (!are_cut_evenly()) return;
    for (std::size_t a = 0; is_ragged_ && a < picked_.size(); ++a) {
      if (!fits_axis(rule_on(a), mesh_shape_[a])) return;
    }
    Choice choice;
    choice.output = Layout::whole(picked_.size());
    choice.inputs.assign(layouts_.size(), choice.output);
    for (std::size_t a = 0; a < picked_.size(); ++a) {
      const AxisRule& rule = rule_on(a);
      for (std::size_t i = 0; i < layouts_.size(); ++i) choice.inputs[i].set(a, rule.inputs[i]);
      choice.output.set(a, rule.output);
    }
    if (!partials_agree(choice.output) || !std::ranges::all_of(choice.inputs, partials_agree))
      return;
    if (is_ragged_) {
      for (Layout& layout : choice.inputs) put_ragged_outermost(layout);
      put_ragged_outermost(choice.output);
    }
    weigh(choice);
    for (std::size_t i = 0; i < layouts_.size(); ++i) {
      Choice ordered = choice;
      follow_order(i, ordered);
      if (ordered.inputs != choice.inputs) weigh(ordered);
    }
  }
  const AxisRule& rule_on(std::size_t axis) const { return rules_[picked_[axis]]; }
  /// Where a rule wants it.
  bool are_cut_evenly() const {
    for (std::size_t axis = 0; axis < picked_.size(); ++axis) {
      const std::int64_t number = rule_on(axis).evenly;
      std::int64_t ranks = 1;
      for (std::size_t other = 0; number != 0 && other < picked_.size(); ++other)
        ranks *= picked_[other] == picked_[axis] ? mesh_shape_[other] : 1;
      if (number != 0 && number % ranks != 0) return false;
    }
    return true;
  }
  /// No tensor is a sum along one axis and a maximum along another.
  static bool partials_agree(const Layout& layout) {
    std::optional<ReduceOp> first;
    for (std::size_t axis = 0; axis < layout.axes(); ++axis) {
      if (!layout.is_partial(axis)) continue;
      if (!first) first = layout.reduce_op(axis);
      if (!partials_mix(*first, layout.reduce_op(axis))) return false;
    }
    return true;
  }

  /// Takes over the order in which operand `leader` is cut now, wherever the same axes cut it.
  void follow_order(std::size_t leader, Choice& choice) const {
    const ShardOrder wanted = choice.inputs[leader].order();
    for (const auto& [dim, axes] : layouts_[leader].order()) {
      const auto found = wanted.find(dim);
      if (found == wanted.end() || !std::ranges::is_permutation(found->second, axes)) continue;
      for (Layout& layout : choice.inputs) set_order(layout, axes);
      set_order(choice.output, axes);
    }
  }
  static void set_order(Layout& layout, const std::vector<int>& axes) {
    const auto first = static_cast<std::size_t>(axes[0]);
    if (layout.is_shard(first)) layout.set_order(layout.dim(first), axes);
  }

  void weigh(const Choice& choice) {
    if (is_ragged_ && !(std::ranges::all_of(choice.inputs, has_ragged_outermost) &&
                        has_ragged_outermost(choice.output))) {
      return;
    }
    PlanCost cost;
    for (std::size_t i = 0; i < layouts_.size(); ++i) cost += cost_of(i, choice.inputs[i]);
    if (operation_.is_weighed_both_ways && !is_ragged_) cost += cost_of_rest(choice);
    const bool counts_result = operation_.wished && !is_ragged_;
    for (std::size_t axis = 0; axis < picked_.size() && !counts_result; ++axis) {
      cost.seconds += put_off(axis, choice.output);
    }
    // Of those that take longer than the fastest one, only alike ones may yet be taken.
    if (!weighed_.empty() && cost.seconds > least_seconds_ * tolerance()) return;
    least_seconds_ = weighed_.empty() ? cost.seconds : std::min(least_seconds_, cost.seconds);
    weighed_.push_back({choice, cost, picked_});
  }

  struct Weighed {
    Choice choice;
    PlanCost cost;
    std::vector<std::size_t> picked;
  };
  double tolerance() const { return operation_.is_weighed_both_ways ? kAlike : 1; }
  /// Of those that take about as long as the fastest one.
  Weighed& best() {
    DT_CHECK(!weighed_.empty());
    const auto is_slow = [&](const Weighed& one) {
      return one.cost.seconds > least_seconds_ * tolerance();
    };
    std::erase_if(weighed_, is_slow);
    const auto is_better = [&](const Weighed& one, const Weighed& other) {
      if (operation_.is_weighed_both_ways && one.cost.collectives != other.cost.collectives)
        return one.cost.collectives < other.cost.collectives;
      if (one.cost == other.cost) return one.picked < other.picked;
      return one.cost < other.cost;
    };
    return *std::ranges::min_element(weighed_, is_better);
  }

  PlanCost cost_between(const tensors::Shape& shape, const Layout& from, const Layout& to,
                        tensors::DType dtype) const {
    if (from == to) return {};
    const CostModel costs = costs_of(dtype);
    return plan_cost(shape, mesh_shape_, quick_plan(shape, mesh_shape_, from, to, costs), costs);
  }

  /// Of the result to where it is wished, and of the gradients: that of the result comes as it is
  /// wished, and those of the operands go to where these lie.
  PlanCost cost_of_rest(const Choice& choice) {
    PlanCost cost;
    bool any_gradient = false;
    for (std::size_t i = 0; i < layouts_.size(); ++i) {
      const Operand& of = operation_.inputs[i];
      if (!of.wants_gradient) continue;
      any_gradient = true;
      cost +=
          cost_between(of.shape, gradient_of(i, choice), without_partials(layouts_[i]), of.dtype);
    }
    for (std::size_t i = 0; i < layouts_.size(); ++i) {
      if (is_brought_again(i, choice)) cost += cost_of(i, choice.inputs[i]);
    }
    cost.seconds += repeated_work(choice);
    if (!operation_.wished) return cost;
    const Layout& wished = *operation_.wished;
    const tensors::Shape& shape = operation_.output_shape;
    cost += cost_between(shape, choice.output, wished, operation_.output_dtype);
    if (any_gradient) {
      cost += cost_between(shape, without_partials(wished), without_partials(choice.output),
                           operation_.output_dtype);
    }
    return cost;
  }

  /// An operand that the gradient of another one needs, and that is not kept as it came because
  /// that is larger.
  bool is_brought_again(std::size_t operand, const Choice& choice) const {
    if (!operation_.inputs[operand].is_saved) return false;
    bool is_needed = false;
    for (std::size_t i = 0; i < layouts_.size(); ++i)
      is_needed = is_needed || (i != operand && operation_.inputs[i].wants_gradient);
    return is_needed &&
           parts_of(choice.inputs[operand], mesh_shape_) < parts_of(layouts_[operand], mesh_shape_);
  }

  /// Seconds that this rank works more than where all axes cut the work, back as well.
  double repeated_work(const Choice& choice) const {
    double passes = 1, parts = 1, rate = 0;
    for (const Operand& operand : operation_.inputs) passes += operand.wants_gradient ? 1 : 0;
    const CostModel costs = costs_of(operation_.output_dtype);
    for (std::size_t axis = 0; axis < picked_.size(); ++axis) {
      const auto is_cut = [&](const Layout& layout) { return layout.is_shard(axis); };
      if (std::ranges::any_of(choice.inputs, is_cut)) parts *= mesh_shape_[axis];
      rate = std::max(rate, costs.link(axis).bytes_per_second * kWorkPerByte);
    }
    return passes * operation_.work * (1 / parts - 1 / ranks_) / rate;
  }

  /// That the gradient of a whole operand comes from all ranks, where another one is cut and stays
  /// so: a batch is not given up for it, since all that follows would be computed by every rank.
  bool is_price_of_cut(std::size_t operand, std::size_t axis, const Choice& choice) const {
    if (operation_.work > 0 || !layouts_[operand].is_replicate(axis)) return false;
    for (std::size_t i = 0; i < layouts_.size(); ++i) {
      if (layouts_[i].is_shard(axis) && layouts_[i][axis] == choice.inputs[i][axis]) return true;
    }
    return false;
  }

  /// As the operand lies; a sum over the ranks where it is the same on all and others differ.
  Layout gradient_of(std::size_t operand, const Choice& choice) const {
    Layout gradient = without_partials(choice.inputs[operand]);
    for (std::size_t axis = 0; axis < picked_.size(); ++axis) {
      if (is_price_of_cut(operand, axis, choice)) {
        gradient.set(axis, Replicate());
        continue;
      }
      if (!choice.inputs[operand].is_replicate(axis)) continue;
      for (std::size_t i = 0; i < choice.inputs.size(); ++i) {
        const Layout& other = choice.inputs[i];
        const bool is_sum = operation_.inputs[i].is_added && other.is_partial(axis);
        if (!other.is_replicate(axis) && !is_sum) gradient.set(axis, Partial());
      }
    }
    return gradient;
  }

  /// The bytes of the reduction that a Partial result needs, less those of an operand's that is
  /// put off as well: none where that has as many elements, or the difference is small.
  double put_off(std::size_t axis, const Layout& output) const {
    if (!rule_on(axis).output.is_partial() || mesh_shape_[axis] == 1) return 0;
    const double of_result = transfer_of_sum(axis, operation_.output_shape, output);
    double of_operand = 0;
    for (std::size_t i = 0; i < layouts_.size(); ++i) {
      if (!layouts_[i].is_partial(axis)) continue;
      const tensors::Shape& shape = operation_.inputs[i].shape;
      if (tensors::numel(shape) >= tensors::numel(operation_.output_shape)) return 0;
      of_operand = std::max(of_operand, transfer_of_sum(axis, shape, layouts_[i]));
    }
    if (of_operand == 0) return of_result;
    // What takes less than a collective's latency is no reason to reduce the operand now.
    const double latency = costs_of(operation_.output_dtype).link(axis).latency;
    return std::max(of_result - of_operand - latency, 0.0);
  }
  /// Of a tensor that is Partial along the axis, in seconds.
  double transfer_of_sum(std::size_t axis, const tensors::Shape& shape,
                         const Layout& partial) const {
    Layout reduced = partial;
    reduced.set(axis, Replicate());
    const CostModel costs = costs_of(operation_.output_dtype);
    const Step step{StepKind::all_reduce, static_cast<int>(axis), partial, reduced};
    return plan_cost(shape, mesh_shape_, {step}, costs).seconds - costs.link(axis).latency;
  }

  PlanCost cost_of(std::size_t operand, const Layout& to) {
    for (const auto& [layout, cost] : known_[operand]) {
      if (layout == to) return cost;
    }
    const Operand& of = operation_.inputs[operand];
    const CostModel costs = costs_of(of.dtype);
    const PlanCost cost =
        plan_cost(of.shape, mesh_shape_,
                  quick_plan(of.shape, mesh_shape_, layouts_[operand], to, costs), costs);
    known_[operand].emplace_back(to, cost);
    return cost;
  }

  CostModel costs_of(tensors::DType dtype) const {
    return {.item_bytes = static_cast<std::int64_t>(tensors::item_size(dtype)), .links = links_};
  }

  const Operation& operation_;
  const std::vector<AxisRule>& rules_;
  const std::vector<int>& mesh_shape_;
  const std::vector<Layout>& layouts_;
  const std::span<const LinkRate> links_;
  double ranks_ = 1;
  bool is_ragged_ = false;                          ///< any operand
  std::vector<std::vector<Candidate>> candidates_;  ///< of each axis, by rising bound
  std::vector<double> least_;
  std::vector<std::size_t> picked_;
  std::vector<std::vector<std::pair<Layout, PlanCost>>> known_;
  std::vector<Weighed> weighed_;  ///< that may be taken
  double least_seconds_ = 0;      ///< of one of them
  int tried_ = 0;                 ///< combinations
};

}  // namespace

std::int64_t parts_of(const Layout& layout, const std::vector<int>& mesh_shape) {
  std::int64_t parts = 1;
  for (std::size_t axis = 0; axis < layout.axes(); ++axis)
    parts *= layout.is_shard(axis) ? mesh_shape[axis] : 1;
  return parts;
}

Choice cheapest_choice(const Operation& operation, const std::vector<AxisRule>& rules,
                       const std::vector<int>& mesh_shape, const std::vector<Layout>& layouts,
                       std::span<const LinkRate> links) {
  return Chooser(operation, rules, mesh_shape, layouts, links).run();
}

std::vector<std::size_t> rules_of(const Choice& choice, const std::vector<AxisRule>& rules) {
  std::vector<std::size_t> taken(choice.output.axes(), 0);
  for (std::size_t axis = 0; axis < taken.size(); ++axis) {
    for (std::size_t rule = rules.size(); rule-- > 0;) {
      bool fits = rules[rule].output == choice.output[axis];
      for (std::size_t i = 0; i < rules[rule].inputs.size(); ++i)
        fits = fits && rules[rule].inputs[i] == choice.inputs[i][axis];
      if (fits) taken[axis] = rule;
    }
  }
  return taken;
}

PlanCost cost_of_rules(const Operation& operation, const std::vector<AxisRule>& rules,
                       const std::vector<std::size_t>& rule_of_axis,
                       const std::vector<int>& mesh_shape, const std::vector<Layout>& layouts,
                       std::span<const LinkRate> links) {
  return Chooser(operation, rules, mesh_shape, layouts, links).cost_of_picked(rule_of_axis);
}

bool is_tried(const Operation& operation, const std::vector<AxisRule>& rules, std::size_t rule,
              std::size_t axis, const std::vector<int>& mesh_shape,
              const std::vector<Layout>& layouts) {
  return Chooser(operation, rules, mesh_shape, layouts, {}).is_sensible(rules[rule], axis);
}

}  // namespace dtrun::dtensor::sharding
