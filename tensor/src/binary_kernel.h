// Row kernels of the pointwise operations: operand 0 = operand 1 op operand 2, all of one dtype.
#pragma once

#include "strided_loop.h"

namespace dtrun::tensors {

enum class BinaryOp { add, sub, mul, div };

/// div wants a floating-point dtype, sub any but bool (DT_CHECK).
RowKernel binary_kernel(BinaryOp op, DType dtype);

}  // namespace dtrun::tensors
