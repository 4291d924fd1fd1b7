// Search: the cheapest way from one layout to another. A state is a layout, an edge is one step
// along one axis. A* over them is exact: no axis comes to its target for less than is assumed.
#pragma once

#include <limits>
#include <optional>
#include <vector>

#include "dtrun/dtensor/plan/redistribute_plan.h"

namespace dtrun::dtensor {

struct Move {
  StepKind kind = StepKind::relabel;
  std::size_t axis = 0;
  Placement after = Replicate();
};

struct Route {
  PlanCost cost;
  std::vector<Move> moves;
  std::size_t states = 0;  ///< that were seen
};

/// Where an axis that is on its way may be.
enum class Detours {
  none,     ///< its start, Replicate and its target
  any_dim,  ///< Shard of any dim, too
};

struct SearchGround {
  const tensors::Shape& shape;
  const std::vector<int>& mesh_shape;
  const CostModel& costs;
};

inline constexpr PlanCost kAnyCost{std::numeric_limits<double>::infinity(), 0};

/// Both layouts have Replicate on axes of one rank. None where there would be too many states to
/// look at, which happens with detours only.
/// @param most what a way that is known costs: dearer ones are not looked at
std::optional<Route> cheapest_route(const SearchGround& ground, const Layout& from,
                                    const Layout& to, Detours detours,
                                    const PlanCost& most = kAnyCost);

}  // namespace dtrun::dtensor
