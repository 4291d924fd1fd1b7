// Checks of arguments that several operations share.
#pragma once

#include <initializer_list>
#include <string_view>

#include "dtrun/tensor/tensor.h"

namespace dtrun::tensors {

/// @throws Error kUnavailable naming the operation when a tensor is not on the cpu
void require_cpu(std::string_view operation, std::initializer_list<Tensor> tensors);

}  // namespace dtrun::tensors
