// Products of bf16 matrices whose sides are packed, by AMX tiles or by AVX-512's products of pairs
// (kernels/bf16_product.h): sums in f32, one rounding.
#pragma once

#include "blas.h"

namespace dtrun::tensors {

/// The result is row-major; both operands have a BLAS layout and no size
/// 0. The order of summation depends on the shape only. Denormal inputs count as 0, as in PyTorch.
/// @pre has_bf16_vectors()
void multiply_packed_bf16(const MatrixView& a, const MatrixView& b, BFloat16* result,
                          const ProductForm& form);

}  // namespace dtrun::tensors
