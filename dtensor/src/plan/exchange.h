// Exchange: the step in which axes that cut dims change places, or their order, all at once: each
// rank gives every other one just what that one lacks. Before it every such axis is Shard, so that
// each element is on one rank of those that differ along the axes. Pure.
#pragma once

#include <cstddef>
#include <vector>

#include "dtrun/dtensor/layout/layout.h"
#include "dtrun/dtensor/plan/cost.h"

namespace dtrun::dtensor {

/// A bit for each axis along which ranks exchange anything: those that are placed otherwise after
/// it, and those that cut what these have cut.
unsigned axes_of_exchange(const Layout& before, const Layout& after);

struct Exchange {
  Layout after;
  unsigned axes;  ///< axes_of_exchange()
};

/// Whether the axes' links have one rate and latency.
enum class Links : bool { alike, different };
Links links_of(const CostModel& costs);

/// How many axes may have anything but Replicate where every exchange is listed. The list grows as
/// the orders of the axes do: a plan on four axes may take 10 ms, on three some tens of
/// microseconds, as a choice among many plans has to.
inline constexpr std::size_t kListedWhole = 4;
inline constexpr std::size_t kListedQuickly = 3;

/// Those on the way from `state` to `target` of several axes, or of one that is cut into other
/// sizes. Where no more than `whole` axes have anything but Replicate, all: each stays, ends or
/// goes to its target, in every order. Else those of all axes that move at once, and, where some
/// have nothing to do with the others, of those alone. An axis that is to be Partial stays at its
/// dim, or comes to be the innermost one there. And of each axis alone that others cut further and
/// that will not cut: it ends, or comes to be the innermost one. Where links differ, also of such
/// an axis that will cut another dim.
/// @param list is overwritten; reused, because a search calls this thousands of times
/// @param whole at most kListedWhole
void list_exchanges(const Layout& state, const Layout& target, Links links,
                    std::vector<Exchange>& list, std::size_t whole = kListedWhole);

/// `now` with the exchange that leads from `before` to `after`; it may have axes of one rank that
/// these do not show.
Layout after_exchange(const Layout& now, const Layout& before, const Layout& after);

/// How many of the ranks along the exchange's axes have an element after it.
int copies_after_exchange(const std::vector<int>& mesh_shape, const Layout& before,
                          const Layout& after);

/// @param had, has elements of the fullest rank before and after
PlanCost exchange_cost(const std::vector<int>& mesh_shape, const Layout& before,
                       const Exchange& exchange, double had, double has, const CostModel& costs);

}  // namespace dtrun::dtensor
