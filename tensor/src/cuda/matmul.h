// Products of CUDA tensors: cuBLAS for floating point, own kernels for integers.
#pragma once

#include "dtrun/tensor/scalar.h"
#include "dtrun/tensor/tensor.h"

namespace dtrun::tensors::cuda {

/// beta 0: what the result holds is not read. Of integers, 1 and 0.
struct ProductFactors {
  Scalar alpha;
  Scalar beta;
};

/// result = alpha * a b + beta * result, matrix by matrix, all with the same batch dims; two dims
/// at least, one dtype, no size of 0 but the inner one; the result of halves may be f32. The result
/// is contiguous; a and b have a BLAS layout (is_blas_layout) where they are floating point.
/// Enqueued on the current stream.
void multiply_batches(const LocalTensor& a, const LocalTensor& b, const LocalTensor& result,
                      const ProductFactors& factors);

}  // namespace dtrun::tensors::cuda
