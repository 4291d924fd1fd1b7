#include "kernels/transpose_kernel.h"

#include <cstring>

#include "dtrun/base/check.h"
#include "multiversion.h"

namespace dtrun::tensors {
namespace {

constexpr std::int64_t kSquare = kTurnedSquare;

/// Of eight rows and columns. The halves of rows 0 to 3 meet those of rows 4 to 7 in one vector as
/// they are loaded; so no later step crosses the middle of a vector.
template <typename A>
__attribute__((always_inline)) inline void transpose_square(A* result, std::int64_t result_row,
                                                            const A* in, std::int64_t in_row) {
  typedef A Half __attribute__((vector_size(4 * sizeof(A))));
  typedef A Whole __attribute__((vector_size(8 * sizeof(A))));
#pragma GCC unroll 2
  for (std::int64_t column = 0; column < kSquare; column += 4) {
    Whole rows[4];
#pragma GCC unroll 4
    for (std::int64_t r = 0; r < 4; ++r) {
      Half upper, lower;
      std::memcpy(&upper, in + r * in_row + column, sizeof upper);
      std::memcpy(&lower, in + (r + 4) * in_row + column, sizeof lower);
      rows[r] = __builtin_shufflevector(upper, lower, 0, 1, 2, 3, 4, 5, 6, 7);
    }
    Whole pairs[4];  // of columns 0 and 1, then of 2 and 3
    pairs[0] = __builtin_shufflevector(rows[0], rows[1], 0, 8, 1, 9, 4, 12, 5, 13);
    pairs[1] = __builtin_shufflevector(rows[2], rows[3], 0, 8, 1, 9, 4, 12, 5, 13);
    pairs[2] = __builtin_shufflevector(rows[0], rows[1], 2, 10, 3, 11, 6, 14, 7, 15);
    pairs[3] = __builtin_shufflevector(rows[2], rows[3], 2, 10, 3, 11, 6, 14, 7, 15);
#pragma GCC unroll 2
    for (std::int64_t p = 0; p < 4; p += 2) {
      const Whole even = __builtin_shufflevector(pairs[p], pairs[p + 1], 0, 1, 8, 9, 4, 5, 12, 13);
      const Whole odd = __builtin_shufflevector(pairs[p], pairs[p + 1], 2, 3, 10, 11, 6, 7, 14, 15);
      std::memcpy(result + (column + p) * result_row, &even, sizeof even);
      std::memcpy(result + (column + p + 1) * result_row, &odd, sizeof odd);
    }
  }
}

/// Of the last rows, less than eight, and 0 behind them.
template <typename A>
__attribute__((always_inline)) inline void transpose_last(A* result, std::int64_t result_row,
                                                          const A* in, std::int64_t in_row,
                                                          std::int64_t rows, std::int64_t columns) {
  A square[kSquare * kSquare] = {};
  std::int64_t c = 0;
  for (; c + kSquare <= columns; c += kSquare) {
    for (std::int64_t r = 0; r < rows; ++r) {
      std::memcpy(square + r * kSquare, in + r * in_row + c, kSquare * sizeof(A));
    }
    transpose_square(result + c * result_row, result_row, square, kSquare);
  }
  for (; c < columns; ++c) {
    for (std::int64_t r = 0; r < kSquare; ++r) {
      result[c * result_row + r] = r < rows ? in[r * in_row + c] : A{0};
    }
  }
}

template <typename A>
DTRUN_MULTIVERSION void transpose_by_squares(A* result, std::int64_t result_row, const A* in,
                                             std::int64_t in_row, std::int64_t rows,
                                             std::int64_t columns, std::int64_t filled) {
  std::int64_t r = 0;
  for (; r + kSquare <= rows; r += kSquare) {
    std::int64_t c = 0;
    for (; c + kSquare <= columns; c += kSquare) {
      transpose_square(result + c * result_row + r, result_row, in + r * in_row + c, in_row);
    }
    for (; c < columns; ++c) {
      for (std::int64_t i = r; i < r + kSquare; ++i) {
        result[c * result_row + i] = in[i * in_row + c];
      }
    }
  }
  if (r < rows) {
    transpose_last(result + r, result_row, in + r * in_row, in_row, rows - r, columns);
    r += kSquare;
  }
  for (; r < filled; r += kSquare) {
    const A zeros[kSquare] = {};
    for (std::int64_t c = 0; c < columns; ++c) {
      std::memcpy(result + c * result_row + r, zeros, sizeof zeros);
    }
  }
}

}  // namespace

template <typename A>
void transpose_rows(A* result, std::int64_t result_row, const A* in, std::int64_t in_row,
                    std::int64_t rows, std::int64_t columns, std::int64_t filled) {
  DT_CHECK(filled % kSquare == 0 && filled >= rows);
  transpose_by_squares(result, result_row, in, in_row, rows, columns, filled);
}

template void transpose_rows(std::uint16_t*, std::int64_t, const std::uint16_t*, std::int64_t,
                             std::int64_t, std::int64_t, std::int64_t);
template void transpose_rows(std::uint32_t*, std::int64_t, const std::uint32_t*, std::int64_t,
                             std::int64_t, std::int64_t, std::int64_t);
template void transpose_rows(std::uint64_t*, std::int64_t, const std::uint64_t*, std::int64_t,
                             std::int64_t, std::int64_t, std::int64_t);
template void transpose_rows(float*, std::int64_t, const float*, std::int64_t, std::int64_t,
                             std::int64_t, std::int64_t);
template void transpose_rows(double*, std::int64_t, const double*, std::int64_t, std::int64_t,
                             std::int64_t, std::int64_t);

}  // namespace dtrun::tensors
