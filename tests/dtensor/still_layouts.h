// Still layouts: how the inputs of a call may lie so that nothing moves while it runs, found by
// running it. The sharding rules of what is made of several operators.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "dtrun/dtensor/autograd/tensor.h"

namespace dtrun::dtensor {

/// "S(0), R -> S(0)" for each; not that where all is whole. On a mesh of one axis: collective.
/// @param inputs local, equal on all ranks
std::vector<std::string> still_layouts(const std::function<Tensor(const Tensors&)>& run,
                                       const Tensors& inputs, const DeviceMesh& mesh);

}  // namespace dtrun::dtensor
