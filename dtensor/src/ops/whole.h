// What is whole on every rank: elements that the ranks must know alike.
#pragma once

#include <string_view>

#include "dtrun/dtensor/autograd/tensor.h"

namespace dtrun::dtensor {

/// All of it, on this rank; collective where it is distributed. No gradient flows.
LocalTensor whole_of(const Tensor& tensor);
/// For a call that reads elements, or whose result has a size by them. @throws Error kUsage in a
/// pass of predict_step()
void require_numbers(std::string_view call);

}  // namespace dtrun::dtensor
