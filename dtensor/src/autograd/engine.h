// The engine: goes back through the graph by falling sequence number, in the caller's thread. The
// order is a function of program order alone, hence the same on all ranks, so that collectives
// within gradients meet.
#pragma once

#include "autograd/node.h"

namespace dtrun::dtensor {

/// Adds to the gradient of every leaf that `root` was made of. @throws Error as Tensor::backward
void run_backward(const Tensor& root, const Tensor& gradient, BackwardOptions options);

/// What a gradient is placed as where the tensor is: shards as they are, Partial as Replicate.
Placements gradient_placements(const Placements& placements);

}  // namespace dtrun::dtensor
