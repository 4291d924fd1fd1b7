// Which scores count, and what becomes of a row of them.
#pragma once

#include <cmath>
#include <limits>
#include <optional>

#include "dtrun/tensor/ops/attention.h"
#include "ops/attention_operand.h"
#include "ops/map_call.h"

namespace dtrun::tensors {

/// Tiles depend on nothing but the shape: the same bits for any number of threads.
constexpr std::int64_t kQueries = 96;
constexpr std::int64_t kKeys = 128;
constexpr std::int64_t kKeysBackward = 64;

/// [batch..., rows, columns]
inline Shape with_batch_of(const LocalTensor& query, std::int64_t rows, std::int64_t columns) {
  Shape shape = query.shape();
  shape[shape.size() - 2] = rows;
  shape.back() = columns;
  return shape;
}

template <typename A>
class Visible {
 public:
  Visible(const LocalTensor& query, const LocalTensor& key, const AttentionForm& form)
      : causal_from_(form.causal_from) {
    if (!form.mask.defined()) return;
    require_host("attention", form.mask);
    expanded_ = form.mask.expand(with_batch_of(query, query.size(-2), key.size(-2)));
    is_bool_ = expanded_.dtype() == DType::boolean;
    matrices_.emplace(expanded_, is_bool_ ? DType::u8 : kComputedIn<A>);
  }

  /// Whether none of the queries sees any of the keys from this one on.
  bool none(std::int64_t first_query, std::int64_t queries, std::int64_t first_key) const {
    return causal_from_ && *causal_from_ + first_query + queries - 1 < first_key;
  }

  /// Scores that do not count become minus infinity, the columns beyond `keys` too.
  void apply(const ScoreTile<A>& tile, std::int64_t head, std::int64_t first_query,
             std::int64_t first_key, std::int64_t keys) const {
    for (std::int64_t r = 0; r < tile.rows; ++r) {
      A* const row = tile.data + r * tile.row;
      std::int64_t seen = keys;
      if (causal_from_) {
        seen = std::clamp<std::int64_t>(*causal_from_ + first_query + r + 1 - first_key, 0, keys);
      }
      if (matrices_) mask(row, matrices_->at(head, first_query + r, first_key), seen);
      std::fill(row + seen, row + tile.columns, kNothing);
    }
  }

 private:
  static constexpr A kNothing = -std::numeric_limits<A>::infinity();

  void mask(A* row, char* from, std::int64_t count) const {
    if (is_bool_) {
      std::uint8_t takes_part[kKeys];
      matrices_->load(takes_part, from, count);
      for (std::int64_t i = 0; i < count; ++i) row[i] = takes_part[i] != 0 ? row[i] : kNothing;
    } else {
      A added[kKeys];
      matrices_->load(added, from, count);
      AttentionKernels<A>::add(row, added, count);
    }
  }

  std::optional<std::int64_t> causal_from_;
  LocalTensor expanded_;
  bool is_bool_ = false;
  std::optional<HeadMatrices> matrices_;
};

/// The heads' keys are cut into parts, each of which sums gradients of the queries of its own.
/// @param blocks of keys
inline std::int64_t parts_of_keys(std::int64_t heads, std::int64_t blocks) {
  constexpr std::int64_t kTasks = 16;
  return std::clamp<std::int64_t>(kTasks / std::max<std::int64_t>(heads, 1), 1,
                                  std::max<std::int64_t>(blocks, 1));
}

/// Divides a query's result by its total. @return the logarithm of the sum, infinite where it sees
/// nothing
template <typename A>
A finish_row(A* result, std::int64_t columns, A greatest, const A* total) {
  if (greatest == -std::numeric_limits<A>::infinity()) return std::numeric_limits<A>::infinity();
  const A sum = AttentionKernels<A>::total(total);
  AttentionKernels<A>::scale(result, 1 / sum, columns);
  return greatest + std::log(sum);
}

}  // namespace dtrun::tensors
