// Products of CUDA tensors: cuBLAS for floating point, own kernels for integers.
#pragma once

#include "dtrun/tensor/tensor.h"

namespace dtrun::tensors::cuda {

/// result[...] = a[...] * b[...], all with the same batch dims; two dims at least, one dtype, no
/// size of 0 but the inner one. The result is contiguous; a and b have a BLAS layout
/// (is_blas_layout) where they are floating point. Enqueued on the current stream.
void multiply_batches(const LocalTensor& a, const LocalTensor& b, const LocalTensor& result);

}  // namespace dtrun::tensors::cuda
