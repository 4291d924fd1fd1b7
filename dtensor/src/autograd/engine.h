// The engine: runs backward in the caller's thread. Of the nodes whose gradients are complete it
// visits the one with the highest sequence number; leaves are visited at once. The order depends on
// the program alone. It is therefore the same on all ranks, and collectives in gradients match.
#pragma once

#include "autograd/node.h"

namespace dtrun::dtensor {

/// Adds to the gradient of every leaf of `roots`. If `wanted` is not empty, it changes no leaf and
/// returns the gradients of those instead, undefined where none came.
/// @throws Error as Tensor::backward
Tensors run_backward(const Tensors& roots, const Tensors& gradients, BackwardOptions options,
                     std::span<const Edge> wanted = {});

}  // namespace dtrun::dtensor
