#include "dtrun/dtensor/plan/redistribute_plan.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "dtrun/base/check.h"
#include "plan/exchange.h"
#include "plan/quick_plan.h"
#include "plan/search.h"
#include "plan/step_cost.h"

namespace dtrun::dtensor {
namespace {

using tensors::Shape;

/// Axes of one rank cut and reduce nothing.
Layout without_single_axes(Layout layout, const std::vector<int>& mesh_shape) {
  for (std::size_t axis = 0; axis < mesh_shape.size(); ++axis) {
    if (mesh_shape[axis] == 1) layout.set(axis, Replicate());
  }
  return layout;
}

class StepList {
 public:
  explicit StepList(const Layout& from) : now_(from) {}

  void change(StepKind kind, std::size_t axis, const Placement& after) {
    Layout next = now_;
    next.set(axis, after);
    push(kind, axis, next);
  }
  void make(const MoveMade& made) {
    if (made.move.kind != StepKind::exchange)
      return change(made.move.kind, made.move.axis, made.after[made.move.axis]);
    const unsigned axes = axes_of_exchange(made.before, made.after);
    push(StepKind::exchange, static_cast<std::size_t>(std::countr_zero(axes)),
         after_exchange(now_, made.before, made.after));
  }
  void push(StepKind kind, std::size_t axis, const Layout& after) {
    steps_.push_back({kind, static_cast<int>(axis), now_, after});
    now_ = after;
  }
  const Layout& now() const { return now_; }
  std::vector<Step> take() { return std::move(steps_); }

 private:
  Layout now_;
  std::vector<Step> steps_;
};

void relabel_single_axes(const std::vector<int>& mesh_shape, const Placements& targets,
                         StepList& steps) {
  for (std::size_t axis = 0; axis < mesh_shape.size(); ++axis) {
    if (mesh_shape[axis] != 1 || steps.now()[axis] == targets[axis]) continue;
    steps.change(StepKind::relabel, axis, targets[axis]);
  }
}

/// An axis has yet to cut the dim raggedly, which it can do only as the first one.
bool awaits_ragged(const Layout& from, const Layout& to, int dim) {
  for (std::size_t axis = 0; axis < to.axes(); ++axis) {
    if (to.is_ragged(axis) && to.dim(axis) == dim && from.differs_on(axis, to)) return true;
  }
  return false;
}

/// The targets of axes of one rank, but Replicate where another axis has yet to become Partial or
/// ragged: it can stand beside any.
Placements first_targets(const Layout& from, const Layout& to) {
  Placements targets = to.placements();
  for (std::size_t axis = 0; axis < targets.size(); ++axis) {
    const bool waits = targets[axis].is_shard() ? awaits_ragged(from, to, to.dim(axis))
                                                : from.differs_on(axis, to);
    if (waits) targets[axis] = Replicate();
  }
  return targets;
}

std::vector<Step> plan_on(const SearchGround& ground, const Layout& from, const Layout& to) {
  const std::vector<int>& mesh_shape = ground.mesh_shape;
  DT_CHECK(from.axes() == mesh_shape.size() && to.axes() == mesh_shape.size());
  if (from == to) return {};
  StepList steps(from);
  const bool has_single_axes = std::ranges::find(mesh_shape, 1) != mesh_shape.end();
  if (has_single_axes) relabel_single_axes(mesh_shape, first_targets(from, to), steps);
  const Route route = cheapest_route(ground, without_single_axes(from, mesh_shape),
                                     without_single_axes(to, mesh_shape));
  for (const MoveMade& made : route.moves) steps.make(made);
  if (has_single_axes) relabel_single_axes(mesh_shape, to.placements(), steps);
  if (steps.now() != to) {
    // Only the places of axes of one rank in the orders differ, which means nothing to the data.
    const auto single = std::ranges::find(mesh_shape, 1);
    DT_CHECK(single != mesh_shape.end() && steps.now().placements() == to.placements());
    steps.push(StepKind::relabel, static_cast<std::size_t>(single - mesh_shape.begin()), to);
  }
  return steps.take();
}

}  // namespace

const char* step_kind_name(StepKind kind) {
  switch (kind) {
    case StepKind::all_gather:
      return "all_gather";
    case StepKind::all_to_all:
      return "all_to_all";
    case StepKind::all_reduce:
      return "all_reduce";
    case StepKind::reduce_scatter:
      return "reduce_scatter";
    case StepKind::exchange:
      return "exchange";
    case StepKind::local_chunk:
      return "local_chunk";
    case StepKind::to_partial:
      return "to_partial";
    case StepKind::relabel:
      break;
  }
  return "relabel";
}

bool is_collective(StepKind kind) {
  return kind == StepKind::all_gather || kind == StepKind::all_to_all ||
         kind == StepKind::all_reduce || kind == StepKind::reduce_scatter ||
         kind == StepKind::exchange;
}

std::vector<int> Step::axes() const {
  if (kind != StepKind::exchange) return {axis};
  std::vector<int> axes;
  for (unsigned left = axes_of_exchange(before, after); left != 0; left &= left - 1)
    axes.push_back(std::countr_zero(left));
  return axes;
}

std::string Step::along(const std::vector<std::string>& axis_names) const {
  std::string text;
  for (const int at : axes()) {
    text += text.empty() ? "" : " and ";
    text += axis_names.empty() ? "axis " + std::to_string(at)
                               : axis_names[static_cast<std::size_t>(at)];
  }
  return text;
}

std::vector<Step> plan_redistribute(const Shape& global_shape, const std::vector<int>& mesh_shape,
                                    const Layout& from, const Layout& to, const CostModel& costs) {
  return plan_on({global_shape, mesh_shape, costs}, from, to);
}

std::vector<Step> quick_plan(const Shape& global_shape, const std::vector<int>& mesh_shape,
                             const Layout& from, const Layout& to, const CostModel& costs) {
  return plan_on({global_shape, mesh_shape, costs, kListedQuickly}, from, to);
}

PlanCost plan_cost(const Shape& global_shape, const std::vector<int>& mesh_shape,
                   const std::vector<Step>& steps, const CostModel& costs) {
  PlanCost cost;
  for (const Step& step : steps) {
    const auto axis = static_cast<std::size_t>(step.axis);
    const double had = fullest_elements(global_shape, mesh_shape, step.before);
    const double has = fullest_elements(global_shape, mesh_shape, step.after);
    cost +=
        step.kind == StepKind::exchange
            ? exchange_cost(mesh_shape, step.before,
                            {step.after, axes_of_exchange(step.before, step.after)}, had, has,
                            costs)
            : step_cost(step.kind, mesh_shape[axis], had, has, costs.item_bytes, costs.link(axis));
  }
  return cost;
}

std::string plan_to_string(const std::vector<Step>& steps) {
  std::string text;
  for (const Step& step : steps) {
    text += std::string(step_kind_name(step.kind)) + " on " + step.along({}) + ": " +
            step.before.to_string() + " -> " + step.after.to_string() + "\n";
  }
  return text;
}

}  // namespace dtrun::dtensor
