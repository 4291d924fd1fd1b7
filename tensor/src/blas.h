// One matrix product, and what is added to it: own code (packed_floats.h, packed_bf16.h), oneDNN or
// OpenBLAS (onednn.h, openblas.h).
#pragma once

#include <cstdint>

#include "dtrun/tensor/scalar.h"
#include "dtrun/tensor/tensor.h"
#include "element.h"
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
  std::int64_t leading;  ///< of a BLAS layout, no more than an int holds
};
/// @param matrix its rows or columns lie in one run each
BlasOperand blas_operand(const MatrixView& matrix);

/// What becomes of a product a b: alpha * a b + beta * addend. The addend is of the result's shape
/// and dtype; its rows lie in runs, or are one number each.
struct ProductForm {
  Scalar alpha = 1;
  Scalar beta = 0;
  const void* addend = nullptr;  ///< none: beta counts for nothing
  std::int64_t row_stride = 0;
  std::int64_t column_stride = 0;  ///< 1, or 0

  bool has_addend() const { return addend != nullptr; }
  bool is_plain() const { return !has_addend() && alpha.to_double() == 1; }
  /// Truncated for integers, as in PyTorch.
  template <typename T>
  T alpha_as() const {
    return number_as<T>(alpha);
  }
  template <typename T>
  T beta_as() const {
    return number_as<T>(beta);
  }

 private:
  template <typename T>
  static T number_as(Scalar number) {
    if (number.is_floating()) return convert_number<T>(number.to_double());
    return convert_number<T>(number.to_i64());
  }
};

/// The product, row-major, in that form. f32 and f64: packed_floats.h where that is the fastest
/// way, else OpenBLAS, or oneDNN for f32 where it is found and faster; all leave a and b unread
/// where alpha is 0. bf16: products of pairs (AMX, AVX-512) where the CPU has them; f16, and bf16
/// elsewhere: f32 blocks; the sum with the addend is rounded once. i64, i32, u8: own loops, which
/// wrap and want row-major inputs. Other dtypes: DT_CHECK.
void multiply_matrices(DType dtype, const MatrixView& a, const MatrixView& b, void* result,
                       const ProductForm& form = {});

/// What multiplies bf16 where the processor cannot.
void multiply_bf16_in_blocks(const MatrixView& a, const MatrixView& b, BFloat16* result,
                             const ProductForm& form);

}  // namespace dtrun::tensors
