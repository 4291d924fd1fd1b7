// The accumulators of a group of rows and a strip of columns stay in registers: six rows of four
// vectors with AVX-512, of two with AVX2 and SSE. That keeps both multipliers of a core busy with
// ten loads for 24 products. A row alone is eight vectors wide.
#include "kernels/tile_product.h"

#include <cstring>

#include "kernels/vector_registers.h"
#include "multiversion.h"

namespace dtrun::tensors {
namespace {

template <typename A, int kBytes>
struct TileVector {
  typedef A Type __attribute__((vector_size(kBytes)));
  static constexpr std::int64_t kCount = kBytes / static_cast<int>(sizeof(A));
};

template <typename A, int kBytes, int kRows, int kVectors>
DTRUN_INLINED void multiply_group(const TileProduct<A>& tile, std::int64_t row,
                                  std::int64_t column) {
  using Vector = typename TileVector<A, kBytes>::Type;
  constexpr std::int64_t kCount = TileVector<A, kBytes>::kCount;
  Vector sums[kRows][kVectors] = {};
  const A* left = tile.left + row * tile.left_row;
  const A* right = tile.right + column;
  for (std::int64_t k = 0; k < tile.inner; ++k) {
    Vector columns[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) std::memcpy(&columns[v], right + v * kCount, kBytes);
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      const A factor = left[r * tile.left_row];
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sums[r][v] += factor * columns[v];
    }
    left += tile.left_column;
    right += tile.right_row;
  }
  A* result = tile.result + row * tile.result_row + column;
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      A* const place = result + r * tile.result_row + v * kCount;
      if (tile.sum == TileSum::added) {
        Vector before;
        std::memcpy(&before, place, kBytes);
        sums[r][v] += before;
      }
      std::memcpy(place, &sums[r][v], kBytes);
    }
  }
}

/// A strip of columns: as many groups of six rows as can be, then of four, then single rows.
template <typename A, int kBytes, int kVectors>
DTRUN_INLINED void multiply_strip(const TileProduct<A>& tile, std::int64_t column) {
  std::int64_t sixes = tile.rows / 6;
  const std::int64_t rest = tile.rows % 6;
  // Two groups of four take less time than six rows and two single ones.
  if (sixes > 0 && (rest == 2 || rest == 3)) --sixes;
  std::int64_t row = 0;
  for (; row < 6 * sixes; row += 6) multiply_group<A, kBytes, 6, kVectors>(tile, row, column);
  for (; row + 4 <= tile.rows; row += 4) {
    multiply_group<A, kBytes, 4, kVectors>(tile, row, column);
  }
  for (; row < tile.rows; ++row) multiply_group<A, kBytes, 1, kVectors>(tile, row, column);
}

/// @tparam kWide, kNarrow vectors in a strip; a narrow one is at most kTileLanes columns wide
template <typename A, int kBytes, int kWide, int kNarrow>
DTRUN_INLINED void multiply_strips(const TileProduct<A>& tile) {
  constexpr std::int64_t kCount = TileVector<A, kBytes>::kCount;
  std::int64_t column = 0;
  if (tile.rows == 1) {
    // The sums of few columns would wait for each other.
    constexpr int kAlone = 8;
    for (; column + kAlone * kCount <= tile.columns; column += kAlone * kCount)
      multiply_group<A, kBytes, 1, kAlone>(tile, 0, column);
  }
  if constexpr (kWide > kNarrow) {
    for (; column + kWide * kCount <= tile.columns; column += kWide * kCount) {
      multiply_strip<A, kBytes, kWide>(tile, column);
    }
  }
  for (; column < tile.columns; column += kNarrow * kCount) {
    multiply_strip<A, kBytes, kNarrow>(tile, column);
  }
}

template <typename A>
using TileRun = void (*)(const TileProduct<A>&);

template <typename A>
void run_anywhere(const TileProduct<A>& tile) {
  multiply_strips<A, 16, 2, 2>(tile);
}
#if defined(__x86_64__)
template <typename A>
DTRUN_WITH_AVX2 void run_avx2(const TileProduct<A>& tile) {
  multiply_strips<A, 32, 2, 2>(tile);
}
template <typename A>
DTRUN_WITH_AVX512 void run_avx512(const TileProduct<A>& tile) {
  multiply_strips<A, 64, 4, kTileLanes* static_cast<int>(sizeof(A)) / 64>(tile);
}
#endif

template <typename A>
TileRun<A> best_run() {
#if defined(__x86_64__)
  if (vector_registers() == VectorRegisters::avx512) return &run_avx512<A>;
  if (vector_registers() == VectorRegisters::avx2) return &run_avx2<A>;
#endif
  return &run_anywhere<A>;
}

}  // namespace

void multiply_tile(const TileProduct<float>& tile) {
  static const TileRun<float> run = best_run<float>();
  run(tile);
}
void multiply_tile(const TileProduct<double>& tile) {
  static const TileRun<double> run = best_run<double>();
  run(tile);
}

}  // namespace dtrun::tensors
