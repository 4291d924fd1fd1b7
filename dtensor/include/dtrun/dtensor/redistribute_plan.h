// Redistribute plan: from one Spec's layout to another's as a list of steps, one collective along
// one axis each (or local work only). Pure: no communication, no clock. Made by plan_redistribute,
// run by redistribute.cc, printed by plan_to_string.
#pragma once

#include <string>
#include <vector>

#include "dtrun/dtensor/placement.h"
#include "dtrun/dtensor/shard_layout.h"
#include "dtrun/tensor/shape.h"

namespace dtrun::dtensor {

/// A layout is placements with the order in which axes cut each dim.
struct Layout {
  Placements placements;
  ShardOrder order;
  friend bool operator==(const Layout&, const Layout&) = default;
};

enum class StepKind { all_gather, all_to_all, all_reduce, reduce_scatter, local_chunk, to_partial };
const char* step_kind_name(StepKind kind);

/// One axis changes its placement; the layouts before and after are complete.
struct Step {
  StepKind kind;
  int axis;
  Layout before;
  Layout after;
};

/// @param mesh_shape axis sizes. Every step's axis is innermost of the dim that it removes from or
/// adds to.
std::vector<Step> plan_redistribute(const tensors::Shape& global_shape,
                                    const std::vector<int>& mesh_shape, const Layout& from,
                                    const Layout& to);
std::string plan_to_string(const std::vector<Step>& steps);

}  // namespace dtrun::dtensor
