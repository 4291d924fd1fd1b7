// Redistribute plan: a list of steps from one layout to another. A step is one collective, usually
// along one axis, or local work. Pure: no communication, no clock. plan_redistribute makes it,
// move/redistribute.cc runs it, plan_to_string prints it.
#pragma once

#include <string>
#include <vector>

#include "dtrun/dtensor/layout/layout.h"
#include "dtrun/dtensor/plan/cost.h"
#include "dtrun/tensor/shape.h"

namespace dtrun::dtensor {

enum class StepKind {
  all_gather,      ///< S(d) -> R
  all_to_all,      ///< S(d) -> S(e)
  all_reduce,      ///< P -> R
  reduce_scatter,  ///< P -> S(d)
  exchange,        ///< axes that cut change their dims or their order: each rank gives each other
                   ///< one just what that one lacks
  local_chunk,     ///< R -> S(d); no communication
  to_partial,      ///< R -> P or S(d) -> P; no communication
  relabel,         ///< an axis of one rank changes its placement; nothing happens to the data
};
const char* step_kind_name(StepKind kind);
/// Whether ranks communicate in it.
bool is_collective(StepKind kind);

/// One axis changes its placement, in an exchange several; the layouts before and after are
/// complete.
struct Step {
  StepKind kind;
  int axis;  ///< of an exchange, the first
  Layout before;
  Layout after;

  /// Those along which ranks take part, ascending.
  std::vector<int> axes() const;
  /// "tp", "axis 0" where axes have no names; of an exchange "dp and tp".
  std::string along(const std::vector<std::string>& axis_names) const;
};

/// The steps with the least PlanCost. In each step one axis goes to its target or to Replicate, or
/// an exchange moves sharded axes at once: of up to three any, to their targets, to Replicate or to
/// another order; of more all that move, or those that share dims: to their targets, or inside of
/// all others at their dims where a reduction comes later. Both layouts are made by
/// make_layout. Except in an exchange, the axis of a step is the innermost one of the dim that it
/// leaves and of the dim that it comes to (axes of one rank do not count). Partial to another
/// partial op goes through Replicate.
std::vector<Step> plan_redistribute(const tensors::Shape& global_shape,
                                    const std::vector<int>& mesh_shape, const Layout& from,
                                    const Layout& to, const CostModel& costs = {});

PlanCost plan_cost(const tensors::Shape& global_shape, const std::vector<int>& mesh_shape,
                   const std::vector<Step>& steps, const CostModel& costs = {});
/// "all_gather on axis 1: [S(0), S(1)] -> [S(0), R]", a line per step.
std::string plan_to_string(const std::vector<Step>& steps);

}  // namespace dtrun::dtensor
