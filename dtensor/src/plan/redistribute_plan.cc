#include "dtrun/dtensor/plan/redistribute_plan.h"

#include <algorithm>
#include <utility>

#include "dtrun/base/check.h"
#include "plan/search.h"
#include "plan/step_cost.h"

namespace dtrun::dtensor {
namespace {

using tensors::Shape;

/// Below that a longer look costs about as much as it may spare.
constexpr double kWorthALongerLook = 5e-5;
/// Where so many states lie on the way without detours, a look at detours, too, would be given up.
constexpr std::size_t kTooManyForDetours = 1024;

/// Axes of one rank cut and reduce nothing.
Layout without_single_axes(Layout layout, const std::vector<int>& mesh_shape) {
  for (std::size_t axis = 0; axis < mesh_shape.size(); ++axis) {
    if (mesh_shape[axis] == 1) layout.set(axis, Replicate());
  }
  return layout;
}

/// An axis that has a cut to come to is made whole on its way: an order of axes was in the way.
bool makes_whole_in_between(const Route& route, const Layout& to) {
  return std::ranges::any_of(route.moves, [&](const Move& move) {
    return is_collective(move.kind) && move.after.is_replicate() && to.is_shard(move.axis);
  });
}

std::vector<Move> cheapest_moves(const SearchGround& ground, const Layout& from, const Layout& to) {
  Route direct = *cheapest_route(ground, from, to, Detours::none);
  if (direct.cost.seconds < kWorthALongerLook || direct.states > kTooManyForDetours ||
      !makes_whole_in_between(direct, to)) {
    return std::move(direct.moves);
  }
  std::optional<Route> wide = cheapest_route(ground, from, to, Detours::any_dim, direct.cost);
  return wide ? std::move(wide->moves) : std::move(direct.moves);
}

class StepList {
 public:
  explicit StepList(const Layout& from) : now_(from) {}

  void change(StepKind kind, std::size_t axis, const Placement& after) {
    Layout next = now_;
    next.set(axis, after);
    push(kind, axis, next);
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

/// The targets, but Replicate where an axis has yet to become Partial: it can stand beside any op.
Placements before_partials(const Layout& from, const Layout& to) {
  Placements targets = to.placements();
  for (std::size_t axis = 0; axis < targets.size(); ++axis) {
    if (targets[axis].is_partial() && from[axis] != targets[axis]) targets[axis] = Replicate();
  }
  return targets;
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
         kind == StepKind::all_reduce || kind == StepKind::reduce_scatter;
}

std::vector<Step> plan_redistribute(const Shape& global_shape, const std::vector<int>& mesh_shape,
                                    const Layout& from, const Layout& to, const CostModel& costs) {
  DT_CHECK(from.axes() == mesh_shape.size() && to.axes() == mesh_shape.size());
  if (from == to) return {};
  StepList steps(from);
  relabel_single_axes(mesh_shape, before_partials(from, to), steps);
  for (const Move& move :
       cheapest_moves({global_shape, mesh_shape, costs}, without_single_axes(from, mesh_shape),
                      without_single_axes(to, mesh_shape))) {
    steps.change(move.kind, move.axis, move.after);
  }
  relabel_single_axes(mesh_shape, to.placements(), steps);
  if (steps.now() != to) {
    // Only the places of axes of one rank in the orders differ, which means nothing to the data.
    const auto single = std::ranges::find(mesh_shape, 1);
    DT_CHECK(single != mesh_shape.end() && steps.now().placements() == to.placements());
    steps.push(StepKind::relabel, static_cast<std::size_t>(single - mesh_shape.begin()), to);
  }
  return steps.take();
}

PlanCost plan_cost(const Shape& global_shape, const std::vector<int>& mesh_shape,
                   const std::vector<Step>& steps, const CostModel& costs) {
  PlanCost cost;
  for (const Step& step : steps) {
    const auto axis = static_cast<std::size_t>(step.axis);
    cost += step_cost(
        step.kind, mesh_shape[axis], fullest_elements(global_shape, mesh_shape, step.before),
        fullest_elements(global_shape, mesh_shape, step.after), costs.item_bytes, costs.link(axis));
  }
  return cost;
}

std::string plan_to_string(const std::vector<Step>& steps) {
  std::string text;
  for (const Step& step : steps) {
    text += std::string(step_kind_name(step.kind)) + " on axis " + std::to_string(step.axis) +
            ": " + step.before.to_string() + " -> " + step.after.to_string() + "\n";
  }
  return text;
}

}  // namespace dtrun::dtensor
