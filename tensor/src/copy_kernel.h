// Row kernels that copy elements from operand 1 to operand 0.
#pragma once

#include "loops/strided_loop.h"

namespace dtrun::tensors {

/// Converts as PyTorch does.
RowKernel copy_kernel(DType target, DType source);

}  // namespace dtrun::tensors
