// One matrix product: oneDNN or OpenBLAS (onednn.h, openblas.h), AMX tiles (amx.h), or own loops.
#pragma once

#include <cstdint>

#include "dtrun/tensor/tensor.h"
#include "half.h"

namespace dtrun::tensors {

/// Strides in elements. One of them must be 1, unless that dim has one element (see
/// is_blas_layout).
struct MatrixView {
  const void* data;
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t row_stride;
  std::int64_t column_stride;
};

/// The last two dims of a tensor.
MatrixView matrix_of(const LocalTensor& tensor);

/// Rows or columns lie in one run each, at a distance that BLAS takes.
bool is_blas_layout(const MatrixView& matrix);

/// How BLAS is told of a matrix: what lies in runs, and the distance between those. Rows are read
/// as they are by a row-major BLAS, columns as the transposed matrix.
enum class Runs { rows, columns };
struct BlasOperand {
  Runs runs;
  int leading;
};
/// @param matrix of a BLAS layout
BlasOperand blas_operand(const MatrixView& matrix);

/// result = a * b, row-major. f32: oneDNN where it is found, else OpenBLAS; f64: OpenBLAS; bf16: AMX
/// where the CPU has it; f16, and bf16 elsewhere: f32 blocks, rounded once; i64, i32, u8: own loops, which wrap and want
/// row-major inputs. Other dtypes: DT_CHECK.
void multiply_matrices(DType dtype, const MatrixView& a, const MatrixView& b, void* result);

}  // namespace dtrun::tensors
