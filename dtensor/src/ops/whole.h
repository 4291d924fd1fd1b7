// What is whole on every rank: elements that the ranks must know alike.
#pragma once

#include "dtrun/dtensor/autograd/tensor.h"

namespace dtrun::dtensor {

/// All of it, on this rank; collective where it is distributed. No gradient flows.
LocalTensor whole_of(const Tensor& tensor);

}  // namespace dtrun::dtensor
