// What one query of attention does with keys and values of bf16, where they lie: nothing is brought
// into another order or dtype before, for each of them is met once. Numbers of a row come in groups
// of kOneQueryGroup. Products and sums are f32.
#pragma once

#include <cstdint>

#include "half.h"

namespace dtrun::tensors {

constexpr std::int64_t kOneQueryGroup = 32;

struct RowsOfBf16 {
  const BFloat16* data;
  std::int64_t step;     ///< from a row to the next
  std::int64_t count;    ///< of rows, at least 1
  std::int64_t numbers;  ///< of a row, in whole groups
};

/// scores[i] = query * row i. Behind the last row, up to whole groups of kTileLanes, they are any.
void score_keys(float* scores, const float* query, const RowsOfBf16& keys);

/// result += the sum of weights[i] * row i
void add_weighted(float* result, const float* weights, const RowsOfBf16& values);

}  // namespace dtrun::tensors
