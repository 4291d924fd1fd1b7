#include "plan/exchange.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <functional>

#include "plan/step_cost.h"

namespace dtrun::dtensor {
namespace {

/// What ranks send each other in so many messages takes one latency.
constexpr double kMessagesPerLatency = 8;
/// Axes of one dim of which an outer one may move alone.
constexpr int kMostNested = 4;

bool contains(unsigned axes, std::size_t axis) {
  return (axes >> axis & 1U) != 0;
}

bool are_several(unsigned axes) {
  return (axes & (axes - 1)) != 0;
}

/// Those that are not Replicate, before or after.
std::size_t axes_in_play(const Layout& state, const Layout& target) {
  std::size_t count = 0;
  for (std::size_t axis = 0; axis < state.axes(); ++axis)
    count += static_cast<std::size_t>(!state.is_replicate(axis) || !target.is_replicate(axis));
  return count;
}

unsigned axes_that_cut(const Layout& layout) {
  unsigned axes = 0;
  for (std::size_t axis = 0; axis < layout.axes(); ++axis)
    axes |= static_cast<unsigned>(layout.is_shard(axis)) << axis;
  return axes;
}

/// Some dim is cut by several axes.
bool is_nested(const Layout& layout) {
  int deepest = 0;
  for (std::size_t axis = 0; axis < layout.axes(); ++axis) deepest |= layout.depth(axis);
  return deepest != 0;
}

/// With those that cut what one of `axes` has cut.
unsigned with_inner_axes(const Layout& layout, unsigned axes) {
  if (!is_nested(layout)) return axes;
  // For each dim the depth of the outermost one of `axes`.
  std::array<std::uint8_t, Layout::kMostDims> outermost;
  outermost.fill(Layout::kMaxAxes);
  for (unsigned left = axes & axes_that_cut(layout); left != 0; left &= left - 1) {
    const auto axis = static_cast<std::size_t>(std::countr_zero(left));
    std::uint8_t& depth = outermost[static_cast<std::size_t>(layout.dim(axis))];
    depth = std::min(depth, static_cast<std::uint8_t>(layout.depth(axis)));
  }
  for (unsigned left = axes_that_cut(layout) & ~axes; left != 0; left &= left - 1) {
    const auto axis = static_cast<std::size_t>(std::countr_zero(left));
    const bool is_inside =
        layout.depth(axis) > outermost[static_cast<std::size_t>(layout.dim(axis))];
    axes |= static_cast<unsigned>(is_inside) << axis;
  }
  return axes;
}

/// A cut that becomes a term of a sum. Of an average it would have to be multiplied.
bool may_become_term(const Layout& target, std::size_t axis) {
  return target.is_partial(axis) && target.reduce_op(axis) != ReduceOp::avg;
}

/// What becomes of axes that an exchange moves and whose target is no cut.
enum class NoCut {
  ends,   ///< ranks get the whole dim; but a term's chunk stays
  stays,  ///< at its dim, innermost, for a step along this axis alone
};

/// Those axes cut as in `target`, inside of all others, and those that stay inside of these.
Layout rearranged(const Layout& state, const Layout& target, unsigned axes,
                  NoCut no_cut = NoCut::ends) {
  Layout next = state;
  for (std::size_t axis = 0; axis < state.axes(); ++axis) {
    if (contains(axes, axis)) next.set(axis, Replicate());
  }
  for (int depth = 0; depth < static_cast<int>(state.axes()); ++depth) {
    for (std::size_t axis = 0; axis < state.axes(); ++axis) {
      if (contains(axes, axis) && target.is_shard(axis) && target.depth(axis) == depth)
        next.set(axis, target);
    }
  }
  for (std::size_t axis = 0; axis < state.axes(); ++axis) {
    if (!contains(axes, axis) || target.is_shard(axis)) continue;
    if (no_cut == NoCut::stays || may_become_term(target, axis)) next.set(axis, state);
  }
  return next;
}

/// Of `axes`, the first one and those that share a dim with it, before or after, over any number of
/// others.
unsigned connected(const Layout& state, const Layout& target, unsigned axes) {
  unsigned group = axes & (~axes + 1);
  for (bool grows = true; grows;) {
    grows = false;
    for (std::size_t axis = 0; axis < state.axes(); ++axis) {
      if (!contains(axes, axis) || contains(group, axis)) continue;
      for (std::size_t other = 0; other < state.axes(); ++other) {
        const auto meets = [&](const Layout& a, const Layout& b) {
          return a.is_shard(axis) && b.is_shard(other) && a.dim(axis) == b.dim(other);
        };
        if (!contains(group, other)) continue;
        if (!meets(state, state) && !meets(state, target) && !meets(target, state) &&
            !meets(target, target)) {
          continue;
        }
        group |= 1U << axis;
        grows = true;
      }
    }
  }
  return group;
}

/// One axis that goes from some sizes of its parts to others.
bool is_cut_anew(const Layout& state, const Layout& target, unsigned axes) {
  const auto axis = static_cast<std::size_t>(std::countr_zero(axes));
  return axes != 0 && target.is_shard(axis) && target.dim(axis) == state.dim(axis) &&
         state.differs_on(axis, target);
}

bool all_become_cuts(const Layout& target, unsigned axes) {
  bool all = true;
  for (std::size_t axis = 0; axis < target.axes(); ++axis)
    all = all && (!contains(axes, axis) || target.is_shard(axis));
  return all;
}

/// The exchanges from a state that may be on the way to a target.
class Listing {
 public:
  Listing(const Layout& state, const Layout& target, std::vector<Exchange>& list)
      : state_(state), target_(target), list_(list) {
    for (std::size_t axis = 0; axis < state.axes(); ++axis) {
      const bool is_cut = state.is_shard(axis) && is_cut_anew(state, target, 1U << axis);
      cut_anew_ |= static_cast<unsigned>(is_cut) << axis;
    }
  }

  /// Whether there can be one of these axes: an exchange moves several, or cuts one anew.
  bool may_move(unsigned axes) const { return are_several(axes) || (axes & cut_anew_) != 0; }
  /// Of all of them at once, and of those that share dims. @param axes with the inner ones
  void add_groups(unsigned axes, NoCut no_cut) {
    add(axes, no_cut);
    // Two axes are either the group already added, or each a group of its own, which no exchange
    // moves unless it is cut into other sizes.
    if (!are_several(axes & (axes - 1)) && (axes & cut_anew_) == 0) return;
    for (unsigned left = axes; left != 0;) {
      const unsigned group = connected(state_, target_, left);
      left &= ~group;
      if (group != axes) add(group, no_cut);
    }
  }
  /// Of any of the axes that cut: each stays, ends or goes to its target, in every order.
  void add_all() {
    Layout rest = state_;
    for (std::size_t axis = 0; axis < state_.axes(); ++axis)
      if (state_.is_shard(axis)) rest.set(axis, Replicate());
    add_orders(rest, axes_that_cut(state_));
  }
  /// Of one axis from under those that cut what it has cut and keep their places: it goes to its
  /// target, or, where it will not cut, ends or becomes the innermost one.
  void add_outer_axis(std::size_t axis) {
    Layout next = state_;
    next.set(axis, target_.is_shard(axis) ? target_ : Layout::whole(state_.axes()));
    add(next);
    if (target_.is_shard(axis)) return;
    next = state_;
    next.set(axis, state_);  // innermost, for a step along this axis alone
    add(next);
  }

 private:
  void add(unsigned which, NoCut no_cut) {
    if (may_move(which)) add(rearranged(state_, target_, which, no_cut));
  }
  void add(const Layout& next) {
    if (std::ranges::find(list_, next, &Exchange::after) == list_.end()) add_new(next);
  }
  void add_new(const Layout& next) {
    // An axis may stay, and the step of one axis is a collective along it.
    const unsigned moved = axes_of_exchange(state_, next);
    if (!are_several(moved) && !is_cut_anew(state_, next, moved)) return;
    if (has_ragged_outermost(next)) list_.push_back({next, moved});
  }
  /// `next`, and it with any of the axes `left` inside of all others.
  void add_orders(const Layout& next, unsigned left) {
    add_new(next);
    for (unsigned more = left; more != 0; more &= more - 1) {
      const auto axis = static_cast<std::size_t>(std::countr_zero(more));
      add_innermost(next, left, axis, state_);
      if (target_.is_shard(axis) && !cuts_alike(axis)) add_innermost(next, left, axis, target_);
    }
  }
  void add_innermost(const Layout& next, unsigned left, std::size_t axis, const Layout& cut) {
    if (comes_in_another_order(next, axis, cut.dim(axis))) return;
    Layout inside = next;
    inside.set(axis, cut);
    order_[ordered_++] = axis;
    add_orders(inside, left & ~(1U << axis));
    --ordered_;
  }
  /// In the state and the target, but for the order.
  bool cuts_alike(std::size_t axis) const {
    if (state_.dim(axis) != target_.dim(axis)) return false;
    const bool is_ragged = state_.is_ragged(axis);
    return is_ragged == target_.is_ragged(axis) &&
           (!is_ragged || &state_.cut(axis) == &target_.cut(axis));
  }
  /// Axes of different dims may change places in the order of setting them: of all orders that give
  /// one layout only that is followed in which such an axis comes before a later one.
  bool comes_in_another_order(const Layout& next, std::size_t axis, int dim) const {
    for (std::size_t i = ordered_; i-- > 0;) {
      if (next.dim(order_[i]) == dim) return false;
      if (order_[i] > axis) return true;
    }
    return false;
  }

  const Layout& state_;
  const Layout& target_;
  std::vector<Exchange>& list_;
  unsigned cut_anew_ = 0;  ///< axes that alone go from some sizes of their parts to others
  /// In which add_all() sets axes, and how many are set.
  std::array<std::size_t, kListedWhole> order_{};
  std::size_t ordered_ = 0;
};

}  // namespace

unsigned axes_of_exchange(const Layout& before, const Layout& after) {
  unsigned axes = 0;
  for (std::size_t axis = 0; axis < before.axes(); ++axis) {
    axes |= static_cast<unsigned>(before.differs_on(axis, after)) << axis;
  }
  return with_inner_axes(before, axes) | with_inner_axes(after, axes);
}

Links links_of(const CostModel& costs) {
  const bool are_alike =
      std::ranges::adjacent_find(costs.links, std::not_equal_to<>()) == costs.links.end();
  return are_alike ? Links::alike : Links::different;
}

void list_exchanges(const Layout& state, const Layout& target, Links links,
                    std::vector<Exchange>& list, std::size_t whole) {
  list.clear();
  Listing listing(state, target, list);
  if (axes_in_play(state, target) <= whole) return listing.add_all();
  unsigned leaving = 0, terms = 0;
  for (std::size_t axis = 0; axis < state.axes(); ++axis) {
    const bool moves = state.is_shard(axis) && state.differs_on(axis, target);
    (may_become_term(target, axis) ? terms : leaving) |= static_cast<unsigned>(moves) << axis;
  }
  const unsigned all = with_inner_axes(state, leaving | terms);
  if (!listing.may_move(all)) return;
  listing.add_groups(with_inner_axes(state, leaving), NoCut::ends);
  if (terms != 0) listing.add_groups(all, NoCut::ends);
  const bool all_cut = all_become_cuts(target, all);
  // Otherwise no axis could stay.
  if (!all_cut) listing.add_groups(all, NoCut::stays);
  // Of axes that will cut, at links of one rate few would gain, and the search takes longer.
  const bool only_ends = links == Links::alike;
  if ((all_cut && only_ends) || !is_nested(state)) return;
  for (unsigned outer = leaving | terms; outer != 0; outer &= outer - 1) {
    const auto axis = static_cast<std::size_t>(std::countr_zero(outer));
    if (only_ends && target.is_shard(axis)) continue;
    // More would make every order of a dim's axes a layout to look at.
    if (state.cuts(state.dim(axis)) > kMostNested) continue;
    if (!state.is_innermost(axis)) listing.add_outer_axis(axis);
  }
}

Layout after_exchange(const Layout& now, const Layout& before, const Layout& after) {
  return rearranged(now, after, axes_of_exchange(before, after));
}

int copies_after_exchange(const std::vector<int>& mesh_shape, const Layout& before,
                          const Layout& after) {
  int copies = 1;
  for (std::size_t axis = 0; axis < before.axes(); ++axis) {
    if (before.is_shard(axis) && after.is_replicate(axis)) copies *= mesh_shape[axis];
  }
  return copies;
}

// A rank keeps what its boxes before and after have in common. Where one dim is cut both before and
// after, they have nothing in common on some rank.
PlanCost exchange_cost(const std::vector<int>& mesh_shape, const Layout& before,
                       const Exchange& exchange, double had, double has, const CostModel& costs) {
  const auto& [after, axes] = exchange;
  double latencies = 0, longest_latency = 0, slowest_seconds_per_byte = 0;
  double ranks = 1;
  bool keeps_nothing = false;
  for (std::size_t axis = 0; axis < before.axes(); ++axis) {
    if (!contains(axes, axis) || mesh_shape[axis] == 1) continue;
    const LinkRate& link = costs.link(axis);
    latencies += link.latency;
    longest_latency = std::max(longest_latency, link.latency);
    slowest_seconds_per_byte = std::max(slowest_seconds_per_byte, 1 / link.bytes_per_second);
    ranks *= mesh_shape[axis];
    for (std::size_t other = 0; other < before.axes(); ++other) {
      keeps_nothing = keeps_nothing ||
                      (contains(axes, other) && mesh_shape[other] != 1 && before.is_shard(axis) &&
                       after.is_shard(other) && before.dim(axis) == after.dim(other));
    }
  }
  const double sent = had * copies_after_exchange(mesh_shape, before, after);
  const double others = keeps_nothing ? 1 : 1 - 1 / ranks;
  const double bytes = std::max(sent, has) * others * static_cast<double>(costs.item_bytes);
  const double latency = std::max(latencies, longest_latency * (ranks - 1) / kMessagesPerLatency);
  // Of the same cost as collectives along one axis each, these are better: they are made for it.
  return {kLocalStep + latency + bytes * slowest_seconds_per_byte, 1};
}

}  // namespace dtrun::dtensor
