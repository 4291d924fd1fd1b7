#include "cuda/matmul.h"

#include <limits>

#include "blas.h"
#include "cuda/context.h"
#include "cuda/kernels.h"
#include "dtrun/base/check.h"
#include "dtrun/tensor/ops/pointwise.h"

namespace dtrun::tensors::cuda {
namespace {

/// cuBLAS reads column by column: a row-major matrix is to it the transposed one, and the row-major
/// result is the transposed result, b' * a'. So the operands change places.
Gemm gemm_of(const LocalTensor& a, const LocalTensor& b, const LocalTensor& result) {
  const MatrixView left = matrix_of(a);
  const MatrixView right = matrix_of(b);
  const BlasOperand left_operand = blas_operand(left);
  const BlasOperand right_operand = blas_operand(right);
  const auto transpose = [](const BlasOperand& operand) {
    return operand.runs == Runs::rows ? BlasTranspose::no : BlasTranspose::yes;
  };
  return {.dtype = a.dtype(),
          .result_dtype = result.dtype(),
          .left_transpose = transpose(right_operand),
          .right_transpose = transpose(left_operand),
          .rows = static_cast<int>(right.columns),
          .columns = static_cast<int>(left.rows),
          .inner = static_cast<int>(left.columns),
          .left = right.data,
          .left_leading = static_cast<int>(right_operand.leading),
          .left_step = 0,
          .right = left.data,
          .right_leading = static_cast<int>(left_operand.leading),
          .right_step = 0,
          .result = result.data(),
          .result_leading = static_cast<int>(right.columns),
          .result_step = 0,
          .batch = 1};
}

void multiply_floating(const LocalTensor& a, const LocalTensor& b, const LocalTensor& result,
                       const ProductFactors& factors) {
  const Stream stream = current_stream(result.device().index);
  Gemm gemm = gemm_of(a, b, result);
  gemm.alpha = factors.alpha.to_double();
  gemm.beta = factors.beta.to_double();
  if (result.dim() == 3) {
    gemm.batch = static_cast<int>(result.size(0));
    gemm.left_step = b.strides()[0];
    gemm.right_step = a.strides()[0];
    gemm.result_step = result.strides()[0];
  }
  context().blas.multiply(gemm, stream);
}

}  // namespace

void multiply_batches(const LocalTensor& a, const LocalTensor& b, const LocalTensor& result,
                      const ProductFactors& factors) {
  const bool is_floating = is_floating_point(result.dtype());
  if (a.size(-1) == 0) {  // sums of nothing; all zero bits are 0
    if (factors.beta.to_double() == 0) return fill(result, 0);
    result.copy_(mul(result, factors.beta));
    return;
  }
  const bool in_one_call = result.dim() == 2 || (result.dim() == 3 && is_floating &&
                                                 result.size(0) <= std::numeric_limits<int>::max());
  if (!in_one_call) {
    for (std::int64_t i = 0; i < result.size(0); ++i) {
      multiply_batches(a[i], b[i], result[i], factors);
    }
  } else if (is_floating) {
    multiply_floating(a, b, result, factors);
  } else {
    DT_CHECK(factors.alpha.to_double() == 1 && factors.beta.to_double() == 0);
    multiply_integers(result, a, b);
  }
}

}  // namespace dtrun::tensors::cuda
