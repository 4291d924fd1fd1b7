// The engine: goes back through the graph in the caller's thread. Of the nodes to which all
// gradients have come it takes the one with the highest sequence number; leaves at once. The order
// is a function of the program alone, hence the same on all ranks, so that collectives within
// gradients meet.
#pragma once

#include "autograd/node.h"

namespace dtrun::dtensor {

/// Adds to the gradient of every leaf that `roots` were made of; or, where some are wanted, returns
/// the gradients of those, undefined where none came, and changes no leaf.
/// @throws Error as Tensor::backward
Tensors run_backward(const Tensors& roots, const Tensors& gradients, BackwardOptions options,
                     std::span<const Edge> wanted = {});

}  // namespace dtrun::dtensor
