// The path of ColossalAI's layout converter from one sharding to another, on a mesh of any number
// of axes. Each step goes to the neighbour (one all_gather, all_to_all or local chunk) that is
// nearest to the target by ShardingSpec::spec_diff. It is here for comparison: redistribute() takes
// the path of least time (plan_redistribute). Pure.
// Source: Li et al., Colossal-AI (ICPP 2023), and its layout_converter.
#pragma once

#include <string>
#include <vector>

#include "dtrun/dtensor/layout/sharding_spec.h"
#include "dtrun/dtensor/plan/redistribute_plan.h"

namespace dtrun::dtensor {

/// One step from a sharding to the next one.
struct ConversionStep {
  StepKind kind;  ///< all_gather, all_to_all or local_chunk
  int mesh_axis;
  int gather_dim = -1;  ///< that the axis leaves; -1: none
  int shard_dim = -1;   ///< that it comes to; -1: none
  ShardingSpec after;
  /// "all_gather(gather_dim 1, axis 1)".
  std::string to_string() const;
};

/// All layouts one step away: gathers first, then exchanges, then chunks. As in ColossalAI, an
/// exchange is between dims that at most one axis shards, and the axes of a dim ascend unless
/// `orders` permits any order.
enum class AxisOrders { ascending, any };
std::vector<ConversionStep> one_step_conversions(const ShardingSpec& from, int mesh_axes,
                                                 AxisOrders orders = AxisOrders::ascending);

struct LayoutConversion {
  ShardingSpec from;
  std::vector<ConversionStep> steps;
  double forward_seconds = 0;   ///< of all steps, as CostModel estimates them
  double backward_seconds = 0;  ///< of the gradients' way back
  /// "[R, S01, R]->[R, S0, R]->[S0, R, R]->[S01, R, R]".
  std::string path() const;
  /// The path, and a line per step and for the costs.
  std::string to_string() const;
};

/// @throws Error kInvalidArgument where one of them does not fit, or where 20 steps do not lead
/// there
LayoutConversion convert_layout(const ShardingSpec& from, const ShardingSpec& to,
                                const tensors::Shape& global_shape,
                                const std::vector<int>& mesh_shape, const CostModel& costs = {});

}  // namespace dtrun::dtensor
