// Large products of f32 and f64 whose sides are packed once, and shared by all threads: for
// processors with AVX2 and without AVX-512.
#pragma once

#include "blas.h"

namespace dtrun::tensors {

/// Whether multiply_packed is the fastest way here for these sides: the processor's registers, and
/// sides long enough that packing is little work.
bool suits_packing(const MatrixView& a, const MatrixView& b, const ProductForm& form);

/// The product, row-major, in that form. Each number is summed in the order of k, 256 of them at a
/// time: its bits depend neither on the threads nor on where other numbers lie.
/// @pre suits_packing
void multiply_packed(const MatrixView& a, const MatrixView& b, float* result,
                     const ProductForm& form);
void multiply_packed(const MatrixView& a, const MatrixView& b, double* result,
                     const ProductForm& form);

}  // namespace dtrun::tensors
