#include "plan/search.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <utility>

#include "dtrun/base/check.h"
#include "plan/step_cost.h"

namespace dtrun::dtensor {
namespace {

/// A plan is made in microseconds; one that moves much may take some milliseconds.
constexpr std::size_t kMostStatesWithDetours = 4096;

/// What has been seen of each layout, by number: a plan that moves much sees thousands.
class Visits {
 public:
  struct Visit {
    Layout state;
    PlanCost cost;
    double elements = 0;  ///< of the fullest rank
    std::uint32_t parent = 0;
    Move move;
  };

  Visits() : numbers_(64, kNone) {}
  const Visit& operator[](std::size_t number) const { return visits_[number]; }
  Visit& operator[](std::size_t number) { return visits_[number]; }
  std::size_t size() const { return visits_.size(); }

  /// Its number, and whether it is new.
  std::pair<std::size_t, bool> add(const Layout& state) {
    if (2 * visits_.size() >= numbers_.size()) grow();
    std::uint32_t& number = place_of(state);
    if (number != kNone) return {number, false};
    number = static_cast<std::uint32_t>(visits_.size());
    visits_.push_back({.state = state, .cost = {}, .move = {}});
    return {number, true};
  }

 private:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  static std::size_t hash(const Layout& state) {
    constexpr std::uint64_t kOdd[] = {0x9e3779b97f4a7c15, 0xc2b2ae3d27d4eb4f, 0x165667b19e3779f9,
                                      0xd6e8feb86659fd93};
    const auto words = std::bit_cast<std::array<std::uint64_t, 4>>(state.packed());
    const std::uint64_t mixed =
        words[0] * kOdd[0] + words[1] * kOdd[1] + words[2] * kOdd[2] + words[3] * kOdd[3];
    return mixed ^ mixed >> 32;
  }
  /// Where its number stands or belongs: a power of two of places, half of them free.
  std::uint32_t& place_of(const Layout& state) {
    const std::size_t mask = numbers_.size() - 1;
    std::size_t place = hash(state) & mask;
    while (numbers_[place] != kNone && visits_[numbers_[place]].state.packed() != state.packed()) {
      place = (place + 1) & mask;
    }
    return numbers_[place];
  }
  void grow() {
    numbers_.assign(4 * numbers_.size(), kNone);
    for (std::size_t i = 0; i < visits_.size(); ++i) {
      place_of(visits_[i].state) = static_cast<std::uint32_t>(i);
    }
  }

  std::vector<Visit> visits_;
  std::vector<std::uint32_t> numbers_;
};

class Search {
 public:
  Search(const SearchGround& ground, const Layout& from, const Layout& to, Detours detours,
         const PlanCost& most)
      : ground_(ground), target_(to), detours_(detours), most_seconds_(most.seconds * kRounding) {
    // Of no less than all axes together leave of the tensor.
    double elements_left = fullest_elements(ground.shape, ground.mesh_shape, Layout());
    for (const int size : ground.mesh_shape) elements_left /= size;
    for (std::size_t axis = 0; axis < from.axes(); ++axis) {
      least_to_leave_[axis] =
          step_cost(StepKind::reduce_scatter, ground.mesh_shape[axis], elements_left, 0,
                    ground.costs.item_bytes, ground.costs.link(axis));
    }
    const std::size_t first = visits_.add(from).first;
    visits_[first].elements = elements(from);
    enqueue(first, at_least({}, from));
  }

  std::optional<Route> run() {
    while (!queue_.empty()) {
      const Due due = queue_.front();
      std::ranges::pop_heap(queue_, IsLater{});
      queue_.pop_back();
      if (due.cost != visits_[due.number].cost) continue;  // a cheaper way to it came since
      const Layout state = visits_[due.number].state;
      if (state == target_) return Route{due.cost, path(due.number), visits_.size()};
      if (detours_ == Detours::any_dim && visits_.size() > kMostStatesWithDetours) return {};
      expand(due.number, state);
    }
    DT_CHECK(!"every layout can be reached over Replicate on all axes");
    return {};
  }

 private:
  /// Sums of the same costs in another order differ by less.
  static constexpr double kRounding = 1 + 1e-9;

  /// A state to go on from.
  struct Due {
    PlanCost at_least;
    PlanCost cost;  ///< so far
    std::uint32_t number;
  };
  /// Where the costs are the same, the one that was seen last, on all ranks.
  struct IsLater {
    bool operator()(const Due& a, const Due& b) const {
      if (a.at_least != b.at_least) return b.at_least < a.at_least;
      return a.number < b.number;
    }
  };

  /// What the whole way costs over a state that is come to for `cost`, at the least: each axis that
  /// has to give up what it has takes a collective of its own.
  PlanCost at_least(PlanCost cost, const Layout& state) const {
    const unsigned strays = state.strays_from(target_);
    for (std::size_t axis = 0; axis < state.axes(); ++axis) {
      const bool leaves = (strays >> axis & 1U) != 0 || is_inside_of(state, axis, strays);
      if (leaves && !(state.is_shard(axis) && target_.is_partial(axis)))
        cost += least_to_leave_[axis];
    }
    return cost;
  }

  /// An axis has to leave its dim before one further out can.
  static bool is_inside_of(const Layout& state, std::size_t axis, unsigned strays) {
    if (!state.is_shard(axis)) return false;
    unsigned outer = 0;
    for (std::size_t other = 0; other < state.axes(); ++other) {
      const auto is_outer = static_cast<unsigned>(state.is_shard(other)) &
                            static_cast<unsigned>(state.dim(other) == state.dim(axis)) &
                            static_cast<unsigned>(state.depth(other) < state.depth(axis));
      outer |= is_outer << other;
    }
    return (outer & strays) != 0;
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

  void expand(std::size_t from, const Layout& state) {
    for (std::size_t axis = 0; axis < state.axes(); ++axis) {
      if (state.is_partial(axis)) {
        leave_partial(from, state, axis);
      } else if (state.is_replicate(axis)) {
        leave_replicate(from, state, axis);
      } else if (state.is_innermost(axis)) {
        leave_shard(from, state, axis);
      }
    }
  }

  void leave_replicate(std::size_t from, const Layout& state, std::size_t axis) {
    if (target_.is_replicate(axis)) return;
    const Placement target = target_[axis];
    if (target.is_shard()) reach(from, state, {StepKind::local_chunk, axis, target});
    if (target.is_partial() && may_become_partial(state, target.reduce_op())) {
      reach(from, state, {StepKind::to_partial, axis, target});
    }
  }

  void leave_partial(std::size_t from, const Layout& state, std::size_t axis) {
    const Placement now = state[axis];
    if (now == target_[axis] || waits_for_sums(state, now)) return;
    reach(from, state, {StepKind::all_reduce, axis, Replicate()});
    to_shards(from, state, axis, StepKind::reduce_scatter);
  }

  void leave_shard(std::size_t from, const Layout& state, std::size_t axis) {
    reach(from, state, {StepKind::all_gather, axis, Replicate()});
    to_shards(from, state, axis, StepKind::all_to_all);
    if (!target_.is_partial(axis)) return;
    const Placement target = target_[axis];
    // An average of one chunk and nothing else would need a multiplication that rounds.
    if (target.reduce_op() != ReduceOp::avg && may_become_partial(state, target.reduce_op())) {
      reach(from, state, {StepKind::to_partial, axis, target});
    }
  }

  /// The axis comes to its target's dim, or to any, as the innermost one.
  void to_shards(std::size_t from, const Layout& state, std::size_t axis, StepKind kind) {
    const int own = state.is_shard(axis) ? state.dim(axis) : -1;
    const int wanted = target_.is_shard(axis) ? target_.dim(axis) : -1;
    for (int dim = 0; dim < static_cast<int>(ground_.shape.size()); ++dim) {
      const bool may_go = dim == wanted || detours_ == Detours::any_dim;
      if (may_go && dim != own) reach(from, state, {kind, axis, Shard(dim)});
    }
  }

  double elements(const Layout& state) const {
    return fullest_elements(ground_.shape, ground_.mesh_shape, state);
  }

  void reach(std::size_t from, const Layout& state, const Move& move) {
    Layout next = state;
    next.set(move.axis, move.after);
    const auto [number, is_new] = visits_.add(next);
    Visits::Visit& visit = visits_[number];
    if (is_new) visit.elements = elements(next);
    PlanCost total = visits_[from].cost;
    total += step_cost(move.kind, ground_.mesh_shape[move.axis], visits_[from].elements,
                       visit.elements, ground_.costs.item_bytes, ground_.costs.link(move.axis));
    if (!is_new && !(total < visit.cost)) return;
    visit.cost = total;
    visit.parent = static_cast<std::uint32_t>(from);
    visit.move = move;
    enqueue(number, at_least(total, next));
  }

  void enqueue(std::size_t number, const PlanCost& at_least) {
    if (at_least.seconds > most_seconds_) return;
    queue_.push_back({at_least, visits_[number].cost, static_cast<std::uint32_t>(number)});
    std::ranges::push_heap(queue_, IsLater{});
  }

  std::vector<Move> path(std::size_t number) const {
    std::vector<Move> moves;
    for (; number != 0; number = visits_[number].parent) moves.push_back(visits_[number].move);
    std::ranges::reverse(moves);
    return moves;
  }

  const SearchGround& ground_;
  const Layout& target_;
  const Detours detours_;
  const double most_seconds_;
  std::array<PlanCost, Layout::kMaxAxes> least_to_leave_;
  Visits visits_;           ///< the start is number 0
  std::vector<Due> queue_;  ///< a heap, the soonest first
};

}  // namespace

std::optional<Route> cheapest_route(const SearchGround& ground, const Layout& from,
                                    const Layout& to, Detours detours, const PlanCost& most) {
  return Search(ground, from, to, detours, most).run();
}

}  // namespace dtrun::dtensor
