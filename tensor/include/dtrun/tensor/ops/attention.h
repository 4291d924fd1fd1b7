// Attention in tiles: the scores of some queries and some keys at a time, which are weighed as they
// come (Dao et al., "FlashAttention", 2022). Memory grows with L + S. On CUDA devices 256 queries at
// a time meet all keys that one of them sees, in the device library's products.
#pragma once

#include <cstdint>
#include <optional>

#include "dtrun/tensor/tensor.h"

namespace dtrun::tensors {

struct AttentionForm {
  double scale = 1;
  /// Given: a query sees the keys up to its own position, which for the first one is this.
  std::optional<std::int64_t> causal_from = {};
  /// Broadcasts to [..., L, S]. bool: true takes part; floating point: added to the scores.
  /// Undefined: none.
  LocalTensor mask = {};
};

struct Attended {
  LocalTensor output;
  /// [..., L], f64 for f64 and f32 otherwise; infinite where a query sees nothing.
  LocalTensor logsumexp;
};

/// softmax(query key^T * scale + mask) value: [..., L, E], [..., S, E], [..., S, Ev] -> [..., L,
/// Ev]; 0 where a query sees nothing. f64 is computed in f64, the others in f32. All three are of
/// one dtype, with the same dims before the last two. @throws Error kInvalidArgument
Attended attention(const LocalTensor& query, const LocalTensor& key, const LocalTensor& value,
                   const AttentionForm& form);

struct AttentionGradients {
  LocalTensor query;
  LocalTensor key;
  LocalTensor value;
};
AttentionGradients attention_backward(const LocalTensor& gradient, const LocalTensor& query,
                                      const LocalTensor& key, const LocalTensor& value,
                                      const Attended& forward, const AttentionForm& form);

}  // namespace dtrun::tensors
