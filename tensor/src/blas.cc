#include "blas.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <type_traits>

#include "arithmetic.h"
#include "dtrun/base/blocked_signals.h"
#include "dtrun/base/check.h"
#include "dtrun/base/error.h"
#include "kernels/bf16_product.h"
#include "kernels/tile_product.h"
#include "kernels/vector_registers.h"
#include "loops/scratch.h"
#include "loops/thread_pool.h"
#include "multiversion.h"
#include "onednn.h"
#include "openblas.h"
#include "packed_bf16.h"
#include "packed_floats.h"

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

/// Where a product's sums go: rows at a distance, times `alpha` to `kept` times what lies there.
template <typename T>
struct Target {
  T* data;
  std::int64_t distance;
  T alpha = 1;
  T kept = 0;
};

/// oneDNN's, in the calling thread alone; what the program has told OpenMP stays as it was. Its
/// AVX-512 kernels (seen in 2.6.3) keep pointers below the stack's end, where a signal's frame
/// overwrites them: so a signal waits for the product's end.
void run_in_one_thread(const OneDnn& library, const MatrixView& a, const BlasOperand& left,
                       const MatrixView& b, const BlasOperand& right, const Target<float>& to) {
  const auto letter = [](const BlasOperand& side) { return side.runs == Runs::rows ? 'N' : 'T'; };
  const int before = library.max_threads();
  library.set_threads(1);
  const base::BlockedSignals blocked(base::BlockedSignals::Faults::taken);
  const int status = library.sgemm(letter(left), letter(right), a.rows, b.columns, a.columns,
                                   to.alpha, static_cast<const float*>(a.data), left.leading,
                                   static_cast<const float*>(b.data), right.leading, to.kept,
                                   to.data, to.distance);
  library.set_threads(before);
  if (status == 0) return;
  throw base::Error(base::ErrorCode::kUnavailable,
                    fmt::format("cannot multiply {} x {} by {} x {} numbers", a.rows, a.columns,
                                b.rows, b.columns),
                    fmt::format("oneDNN's dnnl_sgemm gave status {}", status),
                    "free memory: 1 says that there was none");
}

/// Few numbers, whose packing would take longer than their products. Multiplied as they lie.
template <typename T>
bool multiply_small(const MatrixView& a, const MatrixView& b, const Target<T>& to) {
  constexpr std::int64_t kMost = 48 * 48 * 48;
  if (a.rows * a.columns * b.columns > kMost || b.columns % kTileLanes != 0 ||
      b.column_stride != 1 || to.alpha != 1 || (to.kept != 0 && to.kept != 1)) {
    return false;
  }
  multiply_tile(TileProduct<T>{to.data, to.distance, static_cast<const T*>(a.data), a.row_stride,
                               a.column_stride, static_cast<const T*>(b.data), b.row_stride, a.rows,
                               b.columns, a.columns,
                               to.kept == 0 ? TileSum::fresh : TileSum::added});
  return true;
}

/// oneDNN's AVX-512 kernels pack both sides. Those for AVX2 read them where they lie: lines that
/// are whole pages apart share few places of the first cache, and such a product takes twice as
/// long; so do columns in runs on the left. OpenBLAS packs both sides, and takes a tenth longer for
/// others.
bool suits_onednn(const BlasOperand& left, const BlasOperand& right) {
  if (vector_registers() == VectorRegisters::avx512) return true;
  constexpr int kNumbersOfPage = 512;
  return left.runs == Runs::rows && left.leading % kNumbersOfPage != 0 &&
         right.leading % kNumbersOfPage != 0;
}

void gemm(const MatrixView& a, const MatrixView& b, const Target<float>& to) {
  if (multiply_small(a, b, to)) return;
  const BlasOperand left = blas_operand(a);
  const BlasOperand right = blas_operand(b);
  // Below it the call's own cost shows.
  constexpr std::int64_t kWorthIt = 64 * 64 * 64;
  const bool is_large = a.rows * a.columns * b.columns >= kWorthIt;
  if (const OneDnn* const library = is_large && suits_onednn(left, right) ? onednn() : nullptr) {
    return run_in_one_thread(*library, a, left, b, right, to);
  }
  openblas().sgemm(CblasRowMajor, transpose_of(left), transpose_of(right), static_cast<int>(a.rows),
                   static_cast<int>(b.columns), static_cast<int>(a.columns), to.alpha,
                   static_cast<const float*>(a.data), static_cast<int>(left.leading),
                   static_cast<const float*>(b.data), static_cast<int>(right.leading), to.kept,
                   to.data, static_cast<int>(to.distance));
}

void gemm(const MatrixView& a, const MatrixView& b, const Target<double>& to) {
  if (multiply_small(a, b, to)) return;
  const BlasOperand left = blas_operand(a);
  const BlasOperand right = blas_operand(b);
  openblas().dgemm(CblasRowMajor, transpose_of(left), transpose_of(right), static_cast<int>(a.rows),
                   static_cast<int>(b.columns), static_cast<int>(a.columns), to.alpha,
                   static_cast<const double*>(a.data), static_cast<int>(left.leading),
                   static_cast<const double*>(b.data), static_cast<int>(right.leading), to.kept,
                   to.data, static_cast<int>(to.distance));
}

/// The form of a part of the result.
ProductForm part_of(const ProductForm& form, std::size_t item, std::int64_t row,
                    std::int64_t column) {
  if (!form.has_addend()) return form;
  ProductForm part = form;
  const std::int64_t offset = row * form.row_stride + column * form.column_stride;
  part.addend =
      static_cast<const std::byte*>(form.addend) + offset * static_cast<std::int64_t>(item);
  return part;
}

/// The addend as it is, or zeros.
template <typename T>
void put_addend(const ProductForm& form, std::int64_t rows, std::int64_t columns, T* to,
                std::int64_t distance) {
  for (std::int64_t i = 0; i < rows; ++i) {
    const T* const from = static_cast<const T*>(form.addend) + i * form.row_stride;
    if (!form.has_addend()) {
      std::fill_n(to + i * distance, columns, T{});
    } else if (form.column_stride == 0) {
      std::fill_n(to + i * distance, columns, *from);
    } else {
      std::copy_n(from, columns, to + i * distance);
    }
  }
}

/// The tile's addend is put where its product will be added.
template <typename T>
void gemm_of_form(const MatrixView& a, const MatrixView& b, T* result, std::int64_t distance,
                  const ProductForm& form) {
  if (!form.has_addend()) return gemm(a, b, Target<T>{result, distance, form.alpha_as<T>(), T{0}});
  put_addend(form, a.rows, b.columns, result, distance);
  gemm(a, b, Target<T>{result, distance, form.alpha_as<T>(), form.beta_as<T>()});
}

/// A part of a matrix.
MatrixView block_of(const MatrixView& from, std::size_t item, std::int64_t row, std::int64_t rows,
                    std::int64_t column, std::int64_t columns) {
  const std::int64_t offset = row * from.row_stride + column * from.column_stride;
  return {static_cast<const std::byte*>(from.data) + offset * static_cast<std::int64_t>(item), rows,
          columns, from.row_stride, from.column_stride};
}

/// How the result is cut: into about eight tiles. They depend on the shape only, and one thread
/// computes each, so that the bits are the same for any number of threads. Each packs what it reads
/// of both sides, so the left is packed as often as there are tiles in a row, the right as often as
/// in a column: they are cut so that the fewest numbers are packed.
struct Tiles {
  std::int64_t rows, columns;

  Tiles(std::int64_t of_rows, std::int64_t of_columns) : rows(of_rows), columns(of_columns) {
    constexpr std::int64_t kTiles = 8;
    std::int64_t best = std::numeric_limits<std::int64_t>::max();
    for (const std::int64_t down : {4, 8, 2, 1}) {
      const std::int64_t across = kTiles / down;
      const std::int64_t packed = of_rows * across + of_columns * down;
      if (packed >= best) continue;
      best = packed;
      rows = part(of_rows, down);
      columns = part(of_columns, across);
    }
  }

 private:
  static std::int64_t part(std::int64_t side, std::int64_t parts) {
    constexpr std::int64_t kLeast = 32;
    return std::max(kLeast, ((side + parts - 1) / parts + 15) / 16 * 16);
  }
};

template <typename T>
void gemm_in_tiles(const MatrixView& a, const MatrixView& b, T* result, const ProductForm& form) {
  constexpr std::int64_t kSmall = 128 * 128 * 128;
  if (a.rows * b.columns * a.columns <= kSmall) {
    return gemm_of_form(a, b, result, b.columns, form);
  }
  const Tiles tiles(a.rows, b.columns);
  const std::int64_t across = (b.columns + tiles.columns - 1) / tiles.columns;
  const std::int64_t count = (a.rows + tiles.rows - 1) / tiles.rows * across;
  parallel_for(count, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t row = i / across * tiles.rows, column = i % across * tiles.columns;
      const std::int64_t rows = std::min(tiles.rows, a.rows - row);
      const std::int64_t columns = std::min(tiles.columns, b.columns - column);
      gemm_of_form(block_of(a, sizeof(T), row, rows, 0, a.columns),
                   block_of(b, sizeof(T), 0, b.rows, column, columns),
                   result + row * b.columns + column, b.columns,
                   part_of(form, sizeof(T), row, column));
    }
  });
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
  // Lines without gaps are one.
  const bool is_one = operand.leading == length;
  for (std::int64_t i = 0; i < (is_one ? 1 : lines); ++i) {
    widen_run(static_cast<const T*>(from.data) + i * operand.leading, room + i * length,
              is_one ? lines * length : length);
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

/// sums = alpha * sums + beta * addend
template <typename T>
DTRUN_MULTIVERSION void shape_run(float* sums, float alpha, float beta, const T* addend,
                                  std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) sums[i] = alpha * sums[i] + beta * to_float(addend[i]);
}
/// The same where the addend is one number.
DTRUN_MULTIVERSION void shape_run(float* sums, float alpha, float number, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) sums[i] = alpha * sums[i] + number;
}

template <typename T>
void shape_rows(const ProductForm& form, std::int64_t rows, std::int64_t columns, float* sums) {
  if (form.is_plain()) return;
  const float alpha = form.alpha_as<float>(), beta = form.beta_as<float>();
  for (std::int64_t i = 0; i < rows; ++i) {
    const T* const addend = static_cast<const T*>(form.addend) + i * form.row_stride;
    if (form.has_addend() && form.column_stride == 1) {
      shape_run(sums + i * columns, alpha, beta, addend, columns);
    } else {
      // -0 changes nothing.
      shape_run(sums + i * columns, alpha, form.has_addend() ? beta * to_float(*addend) : -0.0f,
                columns);
    }
  }
}

/// Rows a and columns b of one block of the result.
template <typename T>
void multiply_half_block(const MatrixView& a, const MatrixView& b, T* result, std::int64_t distance,
                         HalfBlockRoom& room, const ProductForm& form) {
  for (std::int64_t k = 0; k < a.columns; k += kHalfInner) {
    const std::int64_t length = std::min(kHalfInner, a.columns - k);
    gemm(widened<T>(block_of(a, sizeof(T), 0, a.rows, k, length), room.left()),
         widened<T>(block_of(b, sizeof(T), k, length, 0, b.columns), room.right()),
         Target<float>{room.sums(), b.columns, 1, k == 0 ? 0.0f : 1.0f});
  }
  shape_rows<T>(form, a.rows, b.columns, room.sums());
  const bool is_one = distance == b.columns;
  for (std::int64_t i = 0; i < (is_one ? 1 : a.rows); ++i) {
    round_run(room.sums() + i * b.columns, result + i * distance,
              is_one ? a.rows * b.columns : b.columns);
  }
}

/// Halves become f32 block by block, never as a whole matrix; the sums are rounded once.
template <typename T>
void multiply_halves(const MatrixView& a, const MatrixView& b, T* result, const ProductForm& form) {
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
                          result + row * b.columns + column, b.columns, room,
                          part_of(form, sizeof(T), row, column));
    }
  });
}

template <typename T>
DTRUN_MULTIVERSION void add_scaled_row(T* result, const T* row, T factor, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    result[i] = Add::apply(result[i], Multiply::apply(factor, row[i]));
  }
}

/// result = beta * addend
template <typename T>
void scale_addend(const ProductForm& form, std::int64_t rows, std::int64_t columns, T* result) {
  put_addend(form, rows, columns, result, columns);
  if (!form.has_addend()) return;
  const auto beta = form.beta_as<ComputeType<T>>();
  for (std::int64_t i = 0; i < rows * columns; ++i) {
    result[i] = Element<T>::store(Multiply::apply(beta, Element<T>::load(result[i])));
  }
}

/// Tiles of b's rows stay in the cache while all rows of a pass over them.
template <typename T>
void multiply_integers(const MatrixView& a, const MatrixView& b, T* result,
                       const ProductForm& form) {
  constexpr std::int64_t kTile = 64;
  const T* left = static_cast<const T*>(a.data);
  const T* right = static_cast<const T*>(b.data);
  const T alpha = form.alpha_as<T>();
  scale_addend(form, a.rows, b.columns, result);
  for (std::int64_t tile = 0; tile < a.columns; tile += kTile) {
    const std::int64_t tile_end = std::min(tile + kTile, a.columns);
    for (std::int64_t i = 0; i < a.rows; ++i) {
      for (std::int64_t k = tile; k < tile_end; ++k) {
        add_scaled_row(result + i * b.columns, right + k * b.columns,
                       Multiply::apply(alpha, left[i * a.columns + k]), b.columns);
      }
    }
  }
}

template <typename T>
void multiply_floats(const MatrixView& a, const MatrixView& b, T* result, const ProductForm& form) {
  if (form.alpha_as<T>() == 0) return scale_addend(form, a.rows, b.columns, result);
  if (suits_packing(a, b, form)) return multiply_packed(a, b, result, form);
  gemm_in_tiles(a, b, result, form);
}

void multiply_bf16(const MatrixView& a, const MatrixView& b, BFloat16* result,
                   const ProductForm& form) {
  // Below it, packing takes longer than the products.
  constexpr std::int64_t kWorthPacking = 20 * 20 * 20;
  if (has_bf16_vectors() && a.rows * a.columns * b.columns >= kWorthPacking) {
    return multiply_packed_bf16(a, b, result, form);
  }
  multiply_bf16_in_blocks(a, b, result, form);
}

template <typename T>
void multiply_typed(const MatrixView& a, const MatrixView& b, T* result, const ProductForm& form) {
  if (a.columns == 0) return scale_addend(form, a.rows, b.columns, result);
  if constexpr (std::is_same_v<T, BFloat16>) {
    multiply_bf16(a, b, result, form);
  } else if constexpr (std::is_same_v<T, Float16>) {
    multiply_halves(a, b, result, form);
  } else if constexpr (std::is_floating_point_v<T>) {
    multiply_floats(a, b, result, form);
  } else {
    multiply_integers(a, b, result, form);
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
    return {Runs::rows, leading};
  }
  const std::int64_t leading = matrix.columns == 1 ? matrix.rows : matrix.column_stride;
  return {Runs::columns, leading};
}

bool is_blas_layout(const MatrixView& matrix) {
  constexpr std::int64_t kMax = std::numeric_limits<int>::max();
  return matrix.row_stride <= kMax && matrix.column_stride <= kMax &&
         (has_dense_rows(matrix) || has_dense_columns(matrix));
}

void multiply_bf16_in_blocks(const MatrixView& a, const MatrixView& b, BFloat16* result,
                             const ProductForm& form) {
  multiply_halves(a, b, result, form);
}

void multiply_matrices(DType dtype, const MatrixView& a, const MatrixView& b, void* result,
                       const ProductForm& form) {
  DT_CHECK(a.columns == b.rows);
  if (a.rows == 0 || b.columns == 0) return;
  switch (dtype) {
    case DType::f32:
      return multiply_typed(a, b, static_cast<float*>(result), form);
    case DType::f64:
      return multiply_typed(a, b, static_cast<double*>(result), form);
    case DType::bf16:
      return multiply_typed(a, b, static_cast<BFloat16*>(result), form);
    case DType::f16:
      return multiply_typed(a, b, static_cast<Float16*>(result), form);
    case DType::i64:
      return multiply_typed(a, b, static_cast<std::int64_t*>(result), form);
    case DType::i32:
      return multiply_typed(a, b, static_cast<std::int32_t*>(result), form);
    case DType::i16:
      return multiply_typed(a, b, static_cast<std::int16_t*>(result), form);
    case DType::i8:
      return multiply_typed(a, b, static_cast<std::int8_t*>(result), form);
    case DType::u8:
      return multiply_typed(a, b, static_cast<std::uint8_t*>(result), form);
    default:
      DT_CHECK(!"a dtype without a matrix product");
  }
}

}  // namespace dtrun::tensors
