// What Tensor's calls with several options take.
#pragma once

#include "dtrun/dtensor/layout/layout.h"
#include "dtrun/dtensor/layout/placement.h"
#include "dtrun/tensor/shape.h"

namespace dtrun::dtensor {

struct FromLocalOptions {
  /// The global shape. Not given: the sums of ragged shards' sizes, and of other dims the local
  /// sizes times the axis sizes that shard them (all ranks must hold equal ones).
  tensors::Shape shape = {};
  bool has_shape = false;  ///< shape is given; {} is that of a 0-dim tensor
  /// Collective over the mesh: every rank's shape and dtype are looked at, and along Replicate axes
  /// all ranks take the first one's elements. What does not fit is refused on all ranks.
  bool run_check = false;
  ShardOrder shard_order = {};
  /// How the given tensor's gradient is to lie, as torch's grad_placements. Empty: as the placements,
  /// Partial as Replicate. @throws Error kInvalidArgument unless it is cut alike
  Placements grad_placements = {};
};

struct BackwardOptions {
  /// The graph can be gone through once more.
  bool retain_graph = false;
  /// The gradients are part of a graph themselves; retains this one.
  bool create_graph = false;
};

}  // namespace dtrun::dtensor
