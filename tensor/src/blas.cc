#include "blas.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "arithmetic.h"
#include "dtrun/base/check.h"
#include "loops/thread_pool.h"
#include "multiversion.h"
#include "openblas.h"

namespace dtrun::tensors {
namespace {

bool has_dense_rows(const MatrixView& matrix) {
  return (matrix.column_stride == 1 || matrix.columns == 1) &&
         (matrix.rows == 1 || matrix.row_stride >= matrix.columns);
}

bool has_dense_columns(const MatrixView& matrix) {
  return (matrix.row_stride == 1 || matrix.rows == 1) &&
         (matrix.columns == 1 || matrix.column_stride >= matrix.rows);
}

CBLAS_TRANSPOSE transpose_of(const BlasOperand& operand) {
  return operand.runs == Runs::rows ? CblasNoTrans : CblasTrans;
}

void gemm(const MatrixView& a, const MatrixView& b, float* result, std::int64_t leading) {
  const BlasOperand left = blas_operand(a);
  const BlasOperand right = blas_operand(b);
  openblas().sgemm(CblasRowMajor, transpose_of(left), transpose_of(right), static_cast<int>(a.rows),
                   static_cast<int>(b.columns), static_cast<int>(a.columns), 1.0f,
                   static_cast<const float*>(a.data), left.leading,
                   static_cast<const float*>(b.data), right.leading, 0.0f, result,
                   static_cast<int>(leading));
}

void gemm(const MatrixView& a, const MatrixView& b, double* result, std::int64_t leading) {
  const BlasOperand left = blas_operand(a);
  const BlasOperand right = blas_operand(b);
  openblas().dgemm(CblasRowMajor, transpose_of(left), transpose_of(right), static_cast<int>(a.rows),
                   static_cast<int>(b.columns), static_cast<int>(a.columns), 1.0,
                   static_cast<const double*>(a.data), left.leading,
                   static_cast<const double*>(b.data), right.leading, 0.0, result,
                   static_cast<int>(leading));
}

/// A side of the result in eight tiles at most, of kTileSide at least.
std::int64_t tile_of(std::int64_t side) {
  constexpr std::int64_t kTileSide = 32;
  const std::int64_t eighth = (side + 7) / 8;
  return std::max(kTileSide, (eighth + 15) / 16 * 16);
}

/// Tiles depend on the shape only, and OpenBLAS computes each with one thread: the same bits for
/// any number of threads.
template <typename T>
void gemm_in_tiles(const MatrixView& a, const MatrixView& b, T* result) {
  constexpr std::int64_t kSmall = 128 * 128 * 128;
  if (a.rows * b.columns * a.columns <= kSmall) return gemm(a, b, result, b.columns);
  if (a.rows >= b.columns || a.rows >= 256) {
    parallel_for(a.rows, tile_of(a.rows), [&](std::int64_t begin, std::int64_t end) {
      const MatrixView rows{static_cast<const T*>(a.data) + begin * a.row_stride, end - begin,
                            a.columns, a.row_stride, a.column_stride};
      gemm(rows, b, result + begin * b.columns, b.columns);
    });
    return;
  }
  parallel_for(b.columns, tile_of(b.columns), [&](std::int64_t begin, std::int64_t end) {
    const MatrixView columns{static_cast<const T*>(b.data) + begin * b.column_stride, b.rows,
                             end - begin, b.row_stride, b.column_stride};
    gemm(a, columns, result + begin, b.columns);
  });
}

template <typename T>
DTRUN_MULTIVERSION void add_scaled_row(T* result, const T* row, T factor, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    result[i] = Add::apply(result[i], Multiply::apply(factor, row[i]));
  }
}

/// Tiles of b's rows stay in the cache while all rows of a pass over them.
template <typename T>
void multiply_integers(const MatrixView& a, const MatrixView& b, T* result) {
  constexpr std::int64_t kTile = 64;
  const T* left = static_cast<const T*>(a.data);
  const T* right = static_cast<const T*>(b.data);
  std::fill_n(result, a.rows * b.columns, T{0});
  for (std::int64_t tile = 0; tile < a.columns; tile += kTile) {
    const std::int64_t tile_end = std::min(tile + kTile, a.columns);
    for (std::int64_t i = 0; i < a.rows; ++i) {
      for (std::int64_t k = tile; k < tile_end; ++k) {
        add_scaled_row(result + i * b.columns, right + k * b.columns, left[i * a.columns + k],
                       b.columns);
      }
    }
  }
}

}  // namespace

MatrixView matrix_of(const LocalTensor& tensor) {
  const std::size_t rank = tensor.shape().size();
  return {tensor.data(), tensor.shape()[rank - 2], tensor.shape()[rank - 1],
          tensor.strides()[rank - 2], tensor.strides()[rank - 1]};
}

BlasOperand blas_operand(const MatrixView& matrix) {
  // A single row's or column's distance is never used, but checked.
  if (has_dense_rows(matrix)) {
    const std::int64_t leading = matrix.rows == 1 ? matrix.columns : matrix.row_stride;
    return {Runs::rows, static_cast<int>(leading)};
  }
  const std::int64_t leading = matrix.columns == 1 ? matrix.rows : matrix.column_stride;
  return {Runs::columns, static_cast<int>(leading)};
}

bool is_blas_layout(const MatrixView& matrix) {
  constexpr std::int64_t kMax = std::numeric_limits<int>::max();
  return matrix.row_stride <= kMax && matrix.column_stride <= kMax &&
         (has_dense_rows(matrix) || has_dense_columns(matrix));
}

void multiply_matrices(DType dtype, const MatrixView& a, const MatrixView& b, void* result) {
  DT_CHECK(a.columns == b.rows);
  if (a.rows == 0 || b.columns == 0) return;
  if (a.columns == 0) {
    std::memset(result, 0, static_cast<std::size_t>(a.rows * b.columns) * item_size(dtype));
    return;
  }
  switch (dtype) {
    case DType::f32:
      return gemm_in_tiles(a, b, static_cast<float*>(result));
    case DType::f64:
      return gemm_in_tiles(a, b, static_cast<double*>(result));
    case DType::i64:
      return multiply_integers(a, b, static_cast<std::int64_t*>(result));
    case DType::i32:
      return multiply_integers(a, b, static_cast<std::int32_t*>(result));
    case DType::u8:
      return multiply_integers(a, b, static_cast<std::uint8_t*>(result));
    default:
      DT_CHECK(!"a dtype without a matrix product");
  }
}

}  // namespace dtrun::tensors
