// TileProduct: the product of two small matrices that lie in the cache, for operations that work in
// tiles (attention). Packs nothing, calls no library, uses the calling thread.
#pragma once

#include <cstdint>

namespace dtrun::tensors {

/// Columns come in groups of so many.
constexpr std::int64_t kTileLanes = 16;

enum class TileSum : std::uint8_t { fresh, added };

/// result[rows, columns] = left[rows, inner] * right[inner, columns], or added to it. Strides in
/// elements.
/// @tparam A float or double
template <typename A>
struct TileProduct {
  A* result;
  std::int64_t result_row;
  const A* left;
  std::int64_t left_row;
  std::int64_t left_column;
  const A* right;
  std::int64_t right_row;
  std::int64_t rows;
  std::int64_t columns;  ///< a multiple of kTileLanes; with AVX2 of two vectors
  std::int64_t inner;
  TileSum sum;
};

void multiply_tile(const TileProduct<float>& tile);
void multiply_tile(const TileProduct<double>& tile);

}  // namespace dtrun::tensors
