// Attention. The batch, the heads and the positions of queries may be sharded. Keys and values are
// whole along their positions and features on every rank.
#pragma once

#include <optional>

#include "dtrun/dtensor/autograd/tensor.h"

namespace dtrun::dtensor {

struct AttentionOptions {
  /// Broadcasts to [..., L, S]. bool: true takes part; floating point: added to the scores.
  Tensor attn_mask = {};
  /// A query sees the keys up to its own position, from the upper left corner on.
  bool is_causal = false;
  double dropout_p = 0;              ///< of the weights, by dropout(); 0 in evaluation
  std::optional<double> scale = {};  ///< of the scores; not given: 1 / sqrt(E)
  /// Grouped queries: in dim -3, query has a multiple of key's and value's heads.
  bool enable_gqa = false;
};
/// softmax(query key^T * scale + mask) value: [..., L, E], [..., S, E], [..., S, Ev] -> [..., L,
/// Ev]. A query that sees no key gets 0, as in PyTorch. Memory grows with L + S, on
/// CUDA as well. It grows with L * S with dropout, with a mask that wants a gradient, and with
/// create_graph.
/// @throws Error kInvalidArgument for shapes that do not fit, and a mask beside is_causal
Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const AttentionOptions& options = {});

}  // namespace dtrun::dtensor
