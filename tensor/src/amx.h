// Products of bf16 matrices in AMX tiles: sums in f32, one rounding. x86 CPUs have them from
// Sapphire Rapids on.
#pragma once

#include "blas.h"

namespace dtrun::tensors {

/// Whether the CPU has AMX and AVX-512 for bf16, and the kernel lets this process use them.
bool has_amx();

/// The product by AMX tiles. The result is row-major; both operands have a BLAS layout and no size
/// 0. The order of summation depends on the shape only. Denormal inputs count as 0, as in PyTorch.
/// @pre has_amx()
void multiply_in_amx(const MatrixView& a, const MatrixView& b, BFloat16* result,
                     const ProductForm& form);

}  // namespace dtrun::tensors
