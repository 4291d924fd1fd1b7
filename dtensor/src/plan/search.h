// Search: the cheapest way from one layout to another. A state is a layout, an edge is one step. A*
// over them is exact: no axis comes to its target for less than is assumed.
#pragma once

#include <vector>

#include "dtrun/dtensor/plan/redistribute_plan.h"
#include "plan/exchange.h"

namespace dtrun::dtensor {

struct Move {
  StepKind kind = StepKind::relabel;
  std::size_t axis = 0;  ///< not of an exchange
};

/// A move, and the layouts that it leads from and to.
struct MoveMade {
  Move move;
  Layout before;
  Layout after;
};

struct Route {
  PlanCost cost;
  std::vector<MoveMade> moves;
};

struct SearchGround {
  const tensors::Shape& shape;
  const std::vector<int>& mesh_shape;
  const CostModel& costs;
  std::size_t whole = kListedWhole;  ///< as list_exchanges()
};

/// Both layouts have Replicate on axes of one rank.
Route cheapest_route(const SearchGround& ground, const Layout& from, const Layout& to);

}  // namespace dtrun::dtensor
