#include "blas.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "amx.h"
#include "arithmetic.h"
#include "dtrun/base/check.h"
#include "dtrun/base/error.h"
#include "element.h"
#include "loops/scratch.h"
#include "loops/thread_pool.h"
#include "multiversion.h"
#include "onednn.h"
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

/// oneDNN's, in the calling thread alone; what the program has told OpenMP stays as it was.
void run_in_one_thread(const OneDnn& library, const MatrixView& a, const MatrixView& b,
                       float* result, std::int64_t leading, float kept) {
  const BlasOperand left = blas_operand(a);
  const BlasOperand right = blas_operand(b);
  const auto letter = [](const BlasOperand& side) { return side.runs == Runs::rows ? 'N' : 'T'; };
  const int before = library.max_threads();
  library.set_threads(1);
  const int status =
      library.sgemm(letter(left), letter(right), a.rows, b.columns, a.columns, 1.0f,
                    static_cast<const float*>(a.data), left.leading,
                    static_cast<const float*>(b.data), right.leading, kept, result, leading);
  library.set_threads(before);
  if (status == 0) return;
  throw base::Error(base::ErrorCode::kUnavailable,
                    fmt::format("cannot multiply {} x {} by {} x {} numbers", a.rows, a.columns,
                                b.rows, b.columns),
                    fmt::format("oneDNN's dnnl_sgemm gave status {}", status),
                    "free memory: 1 says that there was none");
}

/// @param kept what `result` held counts that much
void gemm(const MatrixView& a, const MatrixView& b, float* result, std::int64_t leading,
          float kept = 0) {
  // Below it the call's own cost shows.
  constexpr std::int64_t kWorthIt = 64 * 64 * 64;
  const bool is_large = a.rows * a.columns * b.columns >= kWorthIt;
  if (const OneDnn* const library = is_large ? onednn() : nullptr) {
    return run_in_one_thread(*library, a, b, result, leading, kept);
  }
  const BlasOperand left = blas_operand(a);
  const BlasOperand right = blas_operand(b);
  openblas().sgemm(CblasRowMajor, transpose_of(left), transpose_of(right), static_cast<int>(a.rows),
                   static_cast<int>(b.columns), static_cast<int>(a.columns), 1.0f,
                   static_cast<const float*>(a.data), left.leading,
                   static_cast<const float*>(b.data), right.leading, kept, result,
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

/// Tiles depend on the shape only, and one thread computes each: the same bits for any number of
/// threads.
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

/// A part of a matrix.
MatrixView block_of(const MatrixView& from, std::size_t item, std::int64_t row, std::int64_t rows,
                    std::int64_t column, std::int64_t columns) {
  const std::int64_t offset = row * from.row_stride + column * from.column_stride;
  return {static_cast<const std::byte*>(from.data) + offset * static_cast<std::int64_t>(item), rows,
          columns, from.row_stride, from.column_stride};
}

template <typename T>
DTRUN_MULTIVERSION void widen_run(const T* from, float* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = to_float(from[i]);
}
template <typename T>
DTRUN_MULTIVERSION void round_run(const float* from, T* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = Element<T>::store(from[i]);
}

/// A half matrix in f32, in `room`, its runs as they were.
template <typename T>
MatrixView widened(const MatrixView& from, float* room) {
  const BlasOperand operand = blas_operand(from);
  const bool in_rows = operand.runs == Runs::rows;
  const std::int64_t lines = in_rows ? from.rows : from.columns;
  const std::int64_t length = in_rows ? from.columns : from.rows;
  for (std::int64_t i = 0; i < lines; ++i) {
    widen_run(static_cast<const T*>(from.data) + i * operand.leading, room + i * length, length);
  }
  return in_rows ? MatrixView{room, lines, length, length, 1}
                 : MatrixView{room, length, lines, 1, length};
}

constexpr std::int64_t kHalfRows = 128, kHalfColumns = 256, kHalfInner = 512;

/// f32 memory for one block of a product of halves.
struct HalfBlockRoom {
  Scratch left_room, right_room, sum_room;

  HalfBlockRoom(std::int64_t rows, std::int64_t inner, std::int64_t columns)
      : left_room(rows * inner * 4),
        right_room(inner * columns * 4),
        sum_room(rows * columns * 4) {}
  float* left() { return reinterpret_cast<float*>(left_room.data()); }
  float* right() { return reinterpret_cast<float*>(right_room.data()); }
  float* sums() { return reinterpret_cast<float*>(sum_room.data()); }
};

/// Rows a and columns b of one block of the result.
template <typename T>
void multiply_half_block(const MatrixView& a, const MatrixView& b, T* result, std::int64_t distance,
                         HalfBlockRoom& room) {
  for (std::int64_t k = 0; k < a.columns; k += kHalfInner) {
    const std::int64_t length = std::min(kHalfInner, a.columns - k);
    gemm(widened<T>(block_of(a, sizeof(T), 0, a.rows, k, length), room.left()),
         widened<T>(block_of(b, sizeof(T), k, length, 0, b.columns), room.right()), room.sums(),
         b.columns, k == 0 ? 0.0f : 1.0f);
  }
  for (std::int64_t i = 0; i < a.rows; ++i) {
    round_run(room.sums() + i * b.columns, result + i * distance, b.columns);
  }
}

/// Halves become f32 block by block, never as a whole matrix; the sums are rounded once.
template <typename T>
void multiply_halves(const MatrixView& a, const MatrixView& b, T* result) {
  const std::int64_t across = (b.columns + kHalfColumns - 1) / kHalfColumns;
  const std::int64_t blocks = (a.rows + kHalfRows - 1) / kHalfRows * across;
  parallel_for(blocks, 1, [&](std::int64_t begin, std::int64_t end) {
    HalfBlockRoom room(std::min(kHalfRows, a.rows), std::min(kHalfInner, a.columns),
                       std::min(kHalfColumns, b.columns));
    for (std::int64_t block = begin; block < end; ++block) {
      const std::int64_t row = block / across * kHalfRows;
      const std::int64_t column = block % across * kHalfColumns;
      const std::int64_t rows = std::min(kHalfRows, a.rows - row);
      const std::int64_t columns = std::min(kHalfColumns, b.columns - column);
      multiply_half_block(block_of(a, sizeof(T), row, rows, 0, a.columns),
                          block_of(b, sizeof(T), 0, b.rows, column, columns),
                          result + row * b.columns + column, b.columns, room);
    }
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
    case DType::bf16:
      if (has_amx()) return multiply_in_amx(a, b, static_cast<BFloat16*>(result));
      return multiply_halves(a, b, static_cast<BFloat16*>(result));
    case DType::f16:
      return multiply_halves(a, b, static_cast<Float16*>(result));
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
