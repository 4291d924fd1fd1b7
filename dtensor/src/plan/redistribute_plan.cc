// The search: a state is what every axis of more than one rank does; an edge is one step along one
// axis. Costs compare collectives first, so an axis that stands at Replicate only ever moves to its
// target, and no detour over a third tensor dim can win: each axis knows its start, Replicate and
// its target, and the whole space is small (at most 3 per axis, times orders). Dijkstra over it is
// exact.
#include "dtrun/dtensor/plan/redistribute_plan.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include "dtrun/base/check.h"

namespace dtrun::dtensor {
namespace {

using tensors::Shape;

/// What one axis does: Replicate, Partial of an op, or Shard of a dim at a depth (0: outermost).
struct Slot {
  Placement::Kind kind = Placement::Kind::replicate;
  std::uint16_t value = 0;  ///< op or dim
  std::uint16_t depth = 0;

  bool is_replicate() const { return kind == Placement::Kind::replicate; }
  bool is_shard() const { return kind == Placement::Kind::shard; }
  bool is_partial() const { return kind == Placement::Kind::partial; }
  ReduceOp op() const { return static_cast<ReduceOp>(value); }
  friend auto operator<=>(const Slot&, const Slot&) = default;
};
using State = std::array<Slot, kMaxAxes>;

struct Move {
  StepKind kind = StepKind::relabel;
  std::size_t axis = 0;
  Slot after;
};

struct Visit {
  PlanCost cost;
  State parent;
  Move move;
};

std::int64_t ceil_divide(std::int64_t n, std::int64_t parts) {
  return n / parts + (n % parts != 0 ? 1 : 0);
}

/// @param before, after elements of the fullest rank (the one at the origin)
PlanCost step_cost(StepKind kind, int axis_size, double before, double after) {
  const double others = static_cast<double>(axis_size - 1) / axis_size;
  switch (kind) {
    case StepKind::all_gather:
      return {1, after - before, 1};
    case StepKind::all_to_all:
    case StepKind::reduce_scatter:
      return {1, before * others, 1};
    case StepKind::all_reduce:
      return {1, 2 * before * others, 1};
    case StepKind::local_chunk:
    case StepKind::to_partial:
    case StepKind::relabel:
      break;
  }
  return {0, 0, 1};
}

class Search {
 public:
  Search(const Shape& shape, const std::vector<int>& mesh_shape, const Layout& from,
         const Layout& to)
      : shape_(shape), mesh_shape_(mesh_shape), start_(state_of(from)), target_(state_of(to)) {}

  std::vector<Move> run() {
    visits_[start_] = {};
    queue_.insert({PlanCost{}, start_});
    while (!queue_.empty()) {
      const auto [cost, state] = *queue_.begin();
      queue_.erase(queue_.begin());
      if (state == target_) return path();
      expand(state, cost);
    }
    DT_CHECK(!"every layout can be reached over Replicate on all axes");
    return {};
  }

 private:
  State state_of(const Layout& layout) const {
    State state;
    for (std::size_t axis = 0; axis < mesh_shape_.size(); ++axis) {
      const Placement& placement = layout.placements[axis];
      if (mesh_shape_[axis] == 1 || placement.is_replicate()) continue;
      state[axis].kind = placement.kind();
      state[axis].value = static_cast<std::uint16_t>(
          placement.is_shard() ? placement.dim() : static_cast<int>(placement.reduce_op()));
    }
    for (const auto& [dim, axes] : layout.order) {
      std::uint16_t depth = 0;
      for (const int axis : axes) {
        if (state[static_cast<std::size_t>(axis)].is_shard()) {
          state[static_cast<std::size_t>(axis)].depth = depth++;
        }
      }
    }
    return state;
  }

  /// How many axes cut `dim`.
  std::uint16_t depth_of(const State& state, std::uint16_t dim) const {
    return static_cast<std::uint16_t>(std::ranges::count_if(
        state, [dim](const Slot& slot) { return slot.is_shard() && slot.value == dim; }));
  }

  double elements(const State& state) const {
    double product = 1;
    for (std::size_t dim = 0; dim < shape_.size(); ++dim) {
      std::int64_t size = shape_[dim];
      for (std::size_t axis = 0; axis < mesh_shape_.size(); ++axis) {
        if (state[axis].is_shard() && state[axis].value == dim) {
          size = ceil_divide(size, mesh_shape_[axis]);
        }
      }
      product *= static_cast<double>(size);
    }
    return product;
  }

  bool may_become_partial(const State& state, ReduceOp op) const {
    const auto linear = [](ReduceOp o) { return o == ReduceOp::sum || o == ReduceOp::avg; };
    return std::ranges::all_of(state, [&](const Slot& slot) {
      return !slot.is_partial() || slot.op() == op || (linear(op) && linear(slot.op()));
    });
  }

  /// Averages come after the sums that are due: a division rounds, or truncates, only once then.
  bool waits_for_sums(const State& state, const Slot& now) const {
    if (now.op() != ReduceOp::avg) return false;
    for (std::size_t axis = 0; axis < mesh_shape_.size(); ++axis) {
      const Slot& other = state[axis];
      const bool sum = other.is_partial() && other.op() == ReduceOp::sum;
      if (sum && target_[axis] != other) return true;
    }
    return false;
  }

  void expand(const State& state, const PlanCost& cost) {
    for (std::size_t axis = 0; axis < mesh_shape_.size(); ++axis) {
      const Slot& now = state[axis];
      const Slot& target = target_[axis];
      if (now.is_partial()) {
        if (now == target || waits_for_sums(state, now)) continue;
        reach(state, cost, {StepKind::all_reduce, axis, {}});
        if (target.is_shard()) reach(state, cost, shard(StepKind::reduce_scatter, axis, state));
      } else if (now.is_replicate()) {
        if (target.is_shard()) reach(state, cost, shard(StepKind::local_chunk, axis, state));
        if (target.is_partial() && may_become_partial(state, target.op())) {
          reach(state, cost, {StepKind::to_partial, axis, target});
        }
      } else if (now.depth + 1 == depth_of(state, now.value)) {
        leave_shard(state, cost, axis);
      }
    }
  }

  /// The steps of an axis that is innermost of its dim.
  void leave_shard(const State& state, const PlanCost& cost, std::size_t axis) {
    const Slot& target = target_[axis];
    reach(state, cost, {StepKind::all_gather, axis, {}});
    if (target.is_shard() && target.value != state[axis].value) {
      reach(state, cost, shard(StepKind::all_to_all, axis, state));
    }
    // An average of one chunk and nothing else would need a multiplication that rounds.
    if (target.is_partial() && target.op() != ReduceOp::avg &&
        may_become_partial(state, target.op())) {
      reach(state, cost, {StepKind::to_partial, axis, target});
    }
  }

  /// The axis comes to its target's dim as the innermost one.
  Move shard(StepKind kind, std::size_t axis, const State& state) const {
    const std::uint16_t dim = target_[axis].value;
    return {kind, axis, {Placement::Kind::shard, dim, depth_of(state, dim)}};
  }

  void reach(const State& state, const PlanCost& cost, const Move& move) {
    State next = state;
    next[move.axis] = move.after;
    PlanCost total = cost;
    total += step_cost(move.kind, mesh_shape_[move.axis], elements(state), elements(next));
    const auto [found, is_new] = visits_.try_emplace(next, Visit{total, state, move});
    if (!is_new) {
      if (!(total < found->second.cost)) return;
      queue_.erase({found->second.cost, next});
      found->second = {total, state, move};
    }
    queue_.insert({total, next});
  }

  std::vector<Move> path() const {
    std::vector<Move> moves;
    for (State state = target_; state != start_;) {
      const Visit& visit = visits_.at(state);
      moves.push_back(visit.move);
      state = visit.parent;
    }
    std::ranges::reverse(moves);
    return moves;
  }

  const Shape& shape_;
  const std::vector<int>& mesh_shape_;
  const State start_;
  const State target_;
  std::map<State, Visit> visits_;
  std::set<std::pair<PlanCost, State>> queue_;
};

Placement placement_of(const Slot& slot) {
  if (slot.is_shard()) return Shard(slot.value);
  if (slot.is_partial()) return Partial(slot.op());
  return Replicate();
}

/// `layout` with the axis changed; where it becomes a shard it is the innermost one.
Layout changed(Layout layout, int axis, const Placement& after) {
  Placement& placement = layout.placements[static_cast<std::size_t>(axis)];
  if (placement.is_shard()) {
    std::vector<int>& axes = layout.order[placement.dim()];
    std::erase(axes, axis);
    if (axes.empty()) layout.order.erase(placement.dim());
  }
  if (after.is_shard()) layout.order[after.dim()].push_back(axis);
  placement = after;
  return layout;
}

class StepList {
 public:
  explicit StepList(Layout from) : now_(std::move(from)) {}

  void change(StepKind kind, int axis, const Placement& after) {
    push(kind, axis, changed(now_, axis, after));
  }
  void push(StepKind kind, int axis, Layout after) {
    steps_.push_back({kind, axis, now_, after});
    now_ = std::move(after);
  }
  const Layout& now() const { return now_; }
  std::vector<Step> take() { return std::move(steps_); }

 private:
  Layout now_;
  std::vector<Step> steps_;
};

void relabel_single_axes(const std::vector<int>& mesh_shape, const Placements& targets,
                         StepList& steps) {
  for (std::size_t a = 0; a < mesh_shape.size(); ++a) {
    if (mesh_shape[a] != 1 || steps.now().placements[a] == targets[a]) continue;
    steps.change(StepKind::relabel, static_cast<int>(a), targets[a]);
  }
}

/// The targets, but Replicate where an axis has yet to become Partial: it can stand beside any op.
Placements before_partials(const Layout& from, const Layout& to) {
  Placements targets = to.placements;
  for (std::size_t a = 0; a < targets.size(); ++a) {
    if (targets[a].is_partial() && from.placements[a] != targets[a]) targets[a] = Replicate();
  }
  return targets;
}

double origin_elements(const Shape& shape, const std::vector<int>& mesh_shape,
                       const Layout& layout) {
  const Box box = local_box(shape, mesh_shape, std::vector<int>(mesh_shape.size(), 0), layout);
  double product = 1;
  for (const std::int64_t size : box.shape) product *= static_cast<double>(size);
  return product;
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

PlanCost& PlanCost::operator+=(const PlanCost& other) {
  collectives += other.collectives;
  elements += other.elements;
  steps += other.steps;
  return *this;
}

std::vector<Step> plan_redistribute(const Shape& global_shape, const std::vector<int>& mesh_shape,
                                    const Layout& from, const Layout& to) {
  DT_CHECK(from.placements.size() == mesh_shape.size());
  DT_CHECK(to.placements.size() == mesh_shape.size() && mesh_shape.size() <= kMaxAxes);
  if (from == to) return {};
  StepList steps(from);
  relabel_single_axes(mesh_shape, before_partials(from, to), steps);
  for (const Move& move : Search(global_shape, mesh_shape, from, to).run()) {
    steps.change(move.kind, static_cast<int>(move.axis), placement_of(move.after));
  }
  relabel_single_axes(mesh_shape, to.placements, steps);
  if (steps.now() != to) {
    // Only the places of axes of one rank in the orders differ, which means nothing to the data.
    const auto single = std::ranges::find(mesh_shape, 1);
    DT_CHECK(single != mesh_shape.end() && steps.now().placements == to.placements);
    steps.push(StepKind::relabel, static_cast<int>(single - mesh_shape.begin()), to);
  }
  return steps.take();
}

PlanCost plan_cost(const Shape& global_shape, const std::vector<int>& mesh_shape,
                   const std::vector<Step>& steps) {
  PlanCost cost;
  for (const Step& step : steps) {
    cost += step_cost(step.kind, mesh_shape[static_cast<std::size_t>(step.axis)],
                      origin_elements(global_shape, mesh_shape, step.before),
                      origin_elements(global_shape, mesh_shape, step.after));
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
