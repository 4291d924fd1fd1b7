// Sums of contiguous rows, in an order that depends on the row's length only: element i of a block
// of 1024 goes to lane i mod 16, the lanes are added in pairs, and the blocks are added in pairs.
// So the result is the same on every machine, and more exact than one running sum.
#pragma once

#include <cstdint>

#include "dtrun/tensor/dtype.h"

namespace dtrun::tensors {

/// i64 for integers and bool; else the dtype itself.
DType sum_dtype(DType dtype);

/// target[r] = the sum of the r-th `row_size` elements. f16 and bf16 in f32, rounded once.
void sum_rows(DType dtype, void* target, const void* source, std::int64_t rows,
              std::int64_t row_size);

}  // namespace dtrun::tensors
