// The dtype of sums. Their order of additions is fold_kernel.h's.
#pragma once

#include "dtrun/tensor/dtype.h"

namespace dtrun::tensors {

/// i64 for integers and bool; else the dtype itself.
inline DType sum_dtype(DType dtype) {
  return is_floating_point(dtype) ? dtype : DType::i64;
}

}  // namespace dtrun::tensors
