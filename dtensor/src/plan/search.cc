#include "plan/search.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <utility>

#include "dtrun/base/check.h"
#include "plan/exchange.h"
#include "plan/step_cost.h"

namespace dtrun::dtensor {
namespace {

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

  Visits() : numbers_(64, kNone) { visits_.reserve(numbers_.size() / 4); }
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
  Search(const SearchGround& ground, const Layout& from, const Layout& to)
      : ground_(ground),
        target_(to),
        whole_(Layout::whole(to.axes())),
        links_(links_of(ground.costs)) {
    // Of no less than all axes together leave of the tensor.
    double elements_left = fullest_elements(ground.shape, ground.mesh_shape, Layout());
    double best_rate = 0;
    for (std::size_t axis = 0; axis < from.axes(); ++axis) {
      elements_left /= ground.mesh_shape[axis];
      best_rate = std::max(best_rate, ground.costs.link(axis).bytes_per_second);
    }
    least_to_move_ = elements_left * static_cast<double>(ground.costs.item_bytes) / best_rate;
    queue_.reserve(16);
    const std::size_t first = visits_.add(from).first;
    visits_[first].elements = elements(from);
    enqueue(first, at_least({}, from));
  }

  Route run() {
    while (!queue_.empty()) {
      const Due due = queue_.front();
      std::ranges::pop_heap(queue_, IsLater{});
      queue_.pop_back();
      if (due.cost != visits_[due.number].cost) continue;  // a cheaper way to it came since
      const Layout state = visits_[due.number].state;
      if (state == target_) return {due.cost, path(due.number)};
      expand(due.number, state);
    }
    DT_CHECK(!"every layout can be reached over Replicate on all axes");
    return {};
  }

 private:
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
  /// has to give up what it has takes part in a collective, and what a rank then has has come from
  /// others but for the share that no axis has moved.
  PlanCost at_least(PlanCost cost, const Layout& state) const {
    const unsigned strays = state.strays_from(target_);
    double kept = 1;
    for (std::size_t axis = 0; axis < state.axes(); ++axis) {
      const bool leaves = (strays >> axis & 1U) != 0 || is_inside_of(state, axis, strays);
      if (!leaves || (state.is_shard(axis) && target_.is_partial(axis))) continue;
      cost.seconds += ground_.costs.link(axis).latency;
      kept /= ground_.mesh_shape[axis];
    }
    if (kept < 1) cost += {least_to_move_ * (1 - kept), 1};
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
      if (state.is_partial(axis) && !partials_mix(op, state.reduce_op(axis))) return false;
    }
    return true;
  }

  /// Averages come after the sums that are due: a division rounds, or truncates, only once then.
  bool waits_for_sums(const Layout& state, std::size_t averaged) const {
    if (state.reduce_op(averaged) != ReduceOp::avg) return false;
    for (std::size_t axis = 0; axis < state.axes(); ++axis) {
      const bool is_sum = state.is_partial(axis) && state.reduce_op(axis) == ReduceOp::sum;
      if (is_sum && state.differs_on(axis, target_)) return true;
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
    list_exchanges(state, target_, links_, exchanges_, ground_.whole);
    for (const Exchange& exchange : exchanges_) {
      const auto [number, is_new] = visited(exchange.after);
      const PlanCost cost =
          exchange_cost(ground_.mesh_shape, state, exchange, visits_[from].elements,
                        visits_[number].elements, ground_.costs);
      improve({from, number, is_new}, {.kind = StepKind::exchange}, cost);
    }
  }

  void leave_replicate(std::size_t from, const Layout& state, std::size_t axis) {
    if (target_.is_shard(axis) && may_cut(state, axis))
      reach(from, state, {StepKind::local_chunk, axis}, target_);
    if (target_.is_partial(axis) && may_become_partial(state, target_.reduce_op(axis)))
      reach(from, state, {StepKind::to_partial, axis}, target_);
  }

  void leave_partial(std::size_t from, const Layout& state, std::size_t axis) {
    if (!state.differs_on(axis, target_) || waits_for_sums(state, axis)) return;
    reach(from, state, {StepKind::all_reduce, axis}, whole_);
    to_shard(from, state, {StepKind::reduce_scatter, axis});
  }

  void leave_shard(std::size_t from, const Layout& state, std::size_t axis) {
    reach(from, state, {StepKind::all_gather, axis}, whole_);
    to_shard(from, state, {StepKind::all_to_all, axis});
    if (!target_.is_partial(axis)) return;
    const ReduceOp op = target_.reduce_op(axis);
    // An average of one chunk and nothing else would need a multiplication that rounds.
    if (op != ReduceOp::avg && may_become_partial(state, op))
      reach(from, state, {StepKind::to_partial, axis}, target_);
  }

  /// The axis comes to its target's dim as the innermost one.
  void to_shard(std::size_t from, const Layout& state, const Move& move) {
    const std::size_t axis = move.axis;
    if (!target_.is_shard(axis)) return;
    const bool is_there = state.is_shard(axis) && state.dim(axis) == target_.dim(axis);
    if (!is_there && may_cut(state, axis)) reach(from, state, move, target_);
  }

  /// What the target says of a ragged axis is true of the whole dim only.
  bool may_cut(const Layout& state, std::size_t axis) const {
    return !target_.is_ragged(axis) || state.cuts(target_.dim(axis)) == 0;
  }

  double elements(const Layout& state) const {
    return fullest_elements(ground_.shape, ground_.mesh_shape, state);
  }

  /// The axis becomes what it is in `after`.
  void reach(std::size_t from, const Layout& state, const Move& move, const Layout& after) {
    Layout next = state;
    next.set(move.axis, after);
    const auto [number, is_new] = visited(next);
    const PlanCost cost = step_cost(move.kind, ground_.mesh_shape[move.axis],
                                    visits_[from].elements, visits_[number].elements,
                                    ground_.costs.item_bytes, ground_.costs.link(move.axis));
    improve({from, number, is_new}, move, cost);
  }

  std::pair<std::size_t, bool> visited(const Layout& state) {
    const auto [number, is_new] = visits_.add(state);
    if (is_new) visits_[number].elements = elements(state);
    return {number, is_new};
  }

  struct Edge {
    std::size_t from;
    std::size_t to;
    bool is_first;  ///< that leads there
  };
  void improve(const Edge& edge, const Move& move, const PlanCost& cost) {
    Visits::Visit& visit = visits_[edge.to];
    PlanCost total = visits_[edge.from].cost;
    total += cost;
    if (!edge.is_first && !(total < visit.cost)) return;
    visit.cost = total;
    visit.parent = static_cast<std::uint32_t>(edge.from);
    visit.move = move;
    enqueue(edge.to, at_least(total, visit.state));
  }

  void enqueue(std::size_t number, const PlanCost& at_least) {
    queue_.push_back({at_least, visits_[number].cost, static_cast<std::uint32_t>(number)});
    std::ranges::push_heap(queue_, IsLater{});
  }

  std::vector<MoveMade> path(std::size_t number) const {
    std::vector<MoveMade> moves;
    for (; number != 0; number = visits_[number].parent) {
      const Visits::Visit& visit = visits_[number];
      moves.push_back({visit.move, visits_[visit.parent].state, visit.state});
    }
    std::ranges::reverse(moves);
    return moves;
  }

  const SearchGround& ground_;
  const Layout& target_;
  const Layout whole_;
  const Links links_;
  double least_to_move_ = 0;  ///< seconds of the last share of the tensor
  Visits visits_;             ///< the start is number 0
  std::vector<Due> queue_;    ///< a heap, the soonest first
  std::vector<Exchange> exchanges_;
};

}  // namespace

Route cheapest_route(const SearchGround& ground, const Layout& from, const Layout& to) {
  return Search(ground, from, to).run();
}

}  // namespace dtrun::dtensor
