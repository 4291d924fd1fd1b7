#include "plan/search.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "dtrun/base/check.h"
#include "plan/step_cost.h"

namespace dtrun::dtensor {
namespace {

/// A plan is made in microseconds; one that moves much may take some milliseconds.
constexpr std::size_t kMostStatesWithDetours = 4096;

class Search {
 public:
  Search(const SearchGround& ground, const Layout& from, const Layout& to, Detours detours)
      : ground_(ground), start_(from), target_(to), detours_(detours) {
    least_elements_ = fullest_elements(ground.shape, ground.mesh_shape, Layout());
    for (const int size : ground.mesh_shape) least_elements_ /= size;
  }

  std::optional<Route> run() {
    visits_[start_] = {};
    queue_.insert({at_least({}, start_), start_});
    while (!queue_.empty()) {
      const Layout state = queue_.begin()->second;
      queue_.erase(queue_.begin());
      const PlanCost cost = visits_.at(state).cost;
      if (state == target_) return Route{cost, path()};
      if (detours_ == Detours::any_dim && visits_.size() > kMostStatesWithDetours) return {};
      expand(state, cost);
    }
    DT_CHECK(!"every layout can be reached over Replicate on all axes");
    return {};
  }

 private:
  struct Visit {
    PlanCost cost;
    Layout parent;
    Move move;
  };

  /// What the whole way costs over a state that is come to for `cost`, at the least: each axis that
  /// has to give up what it has takes a collective of its own, of no less than all axes together
  /// leave.
  PlanCost at_least(PlanCost cost, const Layout& state) const {
    for (std::size_t axis = 0; axis < state.axes(); ++axis) {
      if (state.is_replicate(axis) || state[axis] == target_[axis]) continue;
      if (state.is_shard(axis) && target_.is_partial(axis)) continue;
      cost += step_cost(StepKind::reduce_scatter, ground_.mesh_shape[axis], least_elements_, 0,
                        ground_.costs.item_bytes, ground_.costs.link(axis));
    }
    return cost;
  }

  bool may_become_partial(const Layout& state, ReduceOp op) const {
    for (std::size_t axis = 0; axis < state.axes(); ++axis) {
      if (state.is_partial(axis) && !partials_mix(op, state[axis].reduce_op())) return false;
    }
    return true;
  }

  /// Averages come after the sums that are due: a division rounds, or truncates, only once then.
  bool waits_for_sums(const Layout& state, const Placement& now) const {
    if (now.reduce_op() != ReduceOp::avg) return false;
    for (std::size_t axis = 0; axis < state.axes(); ++axis) {
      if (state[axis] == Partial() && target_[axis] != Partial()) return true;
    }
    return false;
  }

  void expand(const Layout& state, const PlanCost& cost) {
    for (std::size_t axis = 0; axis < state.axes(); ++axis) {
      const Placement target = target_[axis];
      if (state.is_partial(axis)) {
        leave_partial(state, cost, axis);
      } else if (state.is_replicate(axis)) {
        if (target.is_shard()) reach(state, cost, {StepKind::local_chunk, axis, target});
        if (target.is_partial() && may_become_partial(state, target.reduce_op())) {
          reach(state, cost, {StepKind::to_partial, axis, target});
        }
      } else if (state.is_innermost(axis)) {
        leave_shard(state, cost, axis);
      }
    }
  }

  void leave_partial(const Layout& state, const PlanCost& cost, std::size_t axis) {
    const Placement now = state[axis];
    if (now == target_[axis] || waits_for_sums(state, now)) return;
    reach(state, cost, {StepKind::all_reduce, axis, Replicate()});
    to_shards(state, cost, axis, StepKind::reduce_scatter);
  }

  void leave_shard(const Layout& state, const PlanCost& cost, std::size_t axis) {
    const Placement target = target_[axis];
    reach(state, cost, {StepKind::all_gather, axis, Replicate()});
    to_shards(state, cost, axis, StepKind::all_to_all);
    // An average of one chunk and nothing else would need a multiplication that rounds.
    if (target.is_partial() && target.reduce_op() != ReduceOp::avg &&
        may_become_partial(state, target.reduce_op())) {
      reach(state, cost, {StepKind::to_partial, axis, target});
    }
  }

  /// The axis comes to its target's dim, or to any, as the innermost one.
  void to_shards(const Layout& state, const PlanCost& cost, std::size_t axis, StepKind kind) {
    for (int dim = 0; dim < static_cast<int>(ground_.shape.size()); ++dim) {
      const bool wanted = target_[axis].is_shard(dim) || detours_ == Detours::any_dim;
      if (wanted && state[axis] != Shard(dim)) reach(state, cost, {kind, axis, Shard(dim)});
    }
  }

  double elements(const Layout& state) const {
    return fullest_elements(ground_.shape, ground_.mesh_shape, state);
  }

  void reach(const Layout& state, const PlanCost& cost, const Move& move) {
    Layout next = state;
    next.set(move.axis, move.after);
    PlanCost total = cost;
    total += step_cost(move.kind, ground_.mesh_shape[move.axis], elements(state), elements(next),
                       ground_.costs.item_bytes, ground_.costs.link(move.axis));
    const auto [found, is_new] = visits_.try_emplace(next, Visit{total, state, move});
    if (!is_new) {
      if (!(total < found->second.cost)) return;
      queue_.erase({at_least(found->second.cost, next), next});
      found->second = {total, state, move};
    }
    queue_.insert({at_least(total, next), next});
  }

  std::vector<Move> path() const {
    std::vector<Move> moves;
    for (Layout state = target_; state != start_;) {
      const Visit& visit = visits_.at(state);
      moves.push_back(visit.move);
      state = visit.parent;
    }
    std::ranges::reverse(moves);
    return moves;
  }

  const SearchGround& ground_;
  const Layout& start_;
  const Layout& target_;
  const Detours detours_;
  double least_elements_ = 0;  ///< of a rank, where all axes cut evenly
  std::map<Layout, Visit> visits_;
  std::set<std::pair<PlanCost, Layout>> queue_;
};

}  // namespace

std::optional<Route> cheapest_route(const SearchGround& ground, const Layout& from,
                                    const Layout& to, Detours detours) {
  return Search(ground, from, to, detours).run();
}

}  // namespace dtrun::dtensor
