// Checks of arguments that several operations share.
#pragma once

#include <string_view>

#include "dtrun/tensor/scalar.h"
#include "dtrun/tensor/tensor.h"

namespace dtrun::tensors {

/// @throws Error kInvalidArgument naming the operation and both devices where they differ
void require_one_device(std::string_view operation, const LocalTensor& a, const LocalTensor& b);
/// As PyTorch: infinities and nan need a floating-point dtype; negative numbers wrap in uint8.
/// @throws Error kInvalidArgument naming the operation, where the dtype cannot hold the number
void require_fits(std::string_view operation, Scalar number, DType dtype);

}  // namespace dtrun::tensors
