// Bf16Product: the product of two small matrices of bf16, summed in f32, by the processor's tiles
// (AMX: Sapphire Rapids and later) or by its vectors (AVX-512 for bf16: Cooper Lake, Zen 4 and
// later), which take pairs of numbers where those of f32 take one.
#pragma once

#include <cstddef>
#include <cstdint>

#include "half.h"
#include "kernels/tile_product.h"

namespace dtrun::tensors {

constexpr std::int64_t kBf16Rows = 16;   ///< rows and columns come in groups of so many
constexpr std::int64_t kBf16Inner = 32;  ///< and what is summed over, of so many

/// Whether the processor has such tiles, and the kernel lets this process use them: asked for once.
bool has_bf16_tiles();
/// Whether it has vectors of AVX-512 with products of bf16. One that has tiles has these, too.
bool has_bf16_vectors();

/// What _tile_loadconfig reads: eight tiles of 16 rows of 64 bytes.
struct alignas(64) TileSizes {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

/// result[rows, columns] = left[rows, inner] * right[inner, columns], or added to it. Row steps in
/// elements.
struct Bf16Product {
  float* result;
  std::int64_t result_row;
  const BFloat16* left;
  std::int64_t left_row;
  /// [inner / 2, columns, 2]: two rows beside each other.
  const BFloat16* right;
  std::int64_t right_row;  ///< from one pair of rows to the next
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t inner;
  TileSum sum;
};
/// Only where has_bf16_vectors(); by tiles where there are some.
void multiply_bf16(const Bf16Product& product);

/// Where a block's sums go rounded: the lower corner of a matrix may have fewer rows and columns.
struct Bf16Corner {
  std::uint16_t* result = nullptr;
  std::int64_t row;       ///< from one to the next, in elements
  std::int64_t rows;      ///< that there are
  std::uint32_t columns;  ///< a bit for each that there is
};
/// The sums of 32 rows and 32 columns over steps of 32, from sides that are packed for tiles
/// (packed_bf16.cc). Distances in bytes.
struct Bf16Steps {
  const std::byte* left;
  std::int64_t left_step;
  std::int64_t left_row;
  const std::byte* right;  ///< a step: two tiles of 16 pairs of rows and 16 columns
  std::int64_t steps;
  float* sums;  ///< [32, 32]; untouched where the sums go rounded
  Bf16Corner rounded = {};
};
/// By vectors. Only where has_bf16_vectors().
void multiply_steps(const Bf16Steps& product);

/// Two rows, rounded, beside each other: result[count, 2].
void pair_rows(BFloat16* result, const float* first, const float* second, std::int64_t count);

}  // namespace dtrun::tensors
