// Row kernels that compare operand 1 with operand 2.
#pragma once

#include "loops/strided_loop.h"

namespace dtrun::tensors {

/// Clears the byte that is operand 0 (stride 0) where any pair differs; NaN equals nothing.
RowKernel all_equal_kernel(DType dtype);

}  // namespace dtrun::tensors
