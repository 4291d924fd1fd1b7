// Products of bf16 matrices in AMX tiles: sums in f32, one rounding. x86 CPUs have them from
// Sapphire Rapids on.
#pragma once

#include "blas.h"

namespace dtrun::tensors {

/// The CPU has AMX and AVX-512 for bf16, and the kernel lets this process use them.
bool has_amx();

/// The product in that form, row-major; both of a BLAS layout, no size 0. Each number is summed in
/// an order that depends on the shape only. Inputs that are denormal count as 0, as in PyTorch.
/// @pre has_amx()
void multiply_in_amx(const MatrixView& a, const MatrixView& b, BFloat16* result,
                     const ProductForm& form);

}  // namespace dtrun::tensors
