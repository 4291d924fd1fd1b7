// What attention does with the elements of a tile of scores. Columns come in groups of kTileLanes.
#pragma once

#include <cstdint>

#include "kernels/tile_product.h"

namespace dtrun::tensors {

/// Rows are queries, columns keys.
template <typename A>
struct ScoreTile {
  A* data;
  std::int64_t row;
  std::int64_t rows;
  std::int64_t columns;
};

/// What a tile's queries have seen so far.
template <typename A>
struct SeenKeys {
  A* greatest;  ///< score
  A* total;     ///< of exp(score - greatest), in kTileLanes parts
  A* results;   ///< of exp(score - greatest) * value
  std::int64_t result_row;
  std::int64_t result_columns;
};

template <typename A>
struct AttentionKernels {
  /// Scores become exp(score - greatest), 0 while a query has seen nothing.
  static void weigh(const ScoreTile<A>& scores, const SeenKeys<A>& seen);
  /// Scores become weights, and the weights' gradients those of the scores.
  static void weigh_again(const ScoreTile<A>& scores, A* gradients, const A* logsumexp,
                          const A* dots);
  /// Of kTileLanes parts.
  static A total(const A* lanes);
  static A dot(const A* a, const A* b, std::int64_t count);
  static void scale(A* row, A factor, std::int64_t count);
  static void add(A* row, const A* other, std::int64_t count);
};

extern template struct AttentionKernels<float>;
extern template struct AttentionKernels<double>;

}  // namespace dtrun::tensors
