// What is whole on every rank: elements that the ranks must know alike.
#pragma once

#include <string_view>

#include "dtrun/dtensor/autograd/tensor.h"

namespace dtrun::dtensor {

/// All of it, on this rank; collective where it is distributed. No gradient flows.
/// @param call that reads its elements, or whose result has a size by them
/// @throws Error kUsage in a pass of predict_step(), which has no numbers, or outside of the mesh
LocalTensor whole_of(const Tensor& tensor, std::string_view call);

}  // namespace dtrun::dtensor
