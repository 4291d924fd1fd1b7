// Checks of arguments that several operations share.
#pragma once

#include <string_view>

#include "dtrun/tensor/tensor.h"

namespace dtrun::tensors {

/// @throws Error kInvalidArgument naming the operation and both devices where they differ
void require_one_device(std::string_view operation, const LocalTensor& a, const LocalTensor& b);

}  // namespace dtrun::tensors
