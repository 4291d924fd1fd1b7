// Attention of few positions: what a tile needs is brought into its order where the tile is
// computed, in the first cache, for no other tile needs it. The bits are those of the other way,
// save of bf16, of which one query and its keys are not brought into any order.
#pragma once

#include "dtrun/tensor/ops/attention.h"

namespace dtrun::tensors {

/// Whether the queries of a head are one tile, whose keys and values no other tile needs. So it is
/// when a model generates: one query meets all keys.
bool is_one_tile_of_queries(const LocalTensor& query);

/// Whether a head's queries and keys are one tile of the way back.
bool is_one_tile_of_gradients(const LocalTensor& query, const LocalTensor& key);

/// @param result filled. Computed in f64 for f64 and in f32 otherwise
void run_few_attention(const LocalTensor& query, const LocalTensor& key, const LocalTensor& value,
                       const AttentionForm& form, const Attended& result);

void run_few_attention_backward(const LocalTensor& gradient, const LocalTensor& query,
                                const LocalTensor& key, const LocalTensor& value,
                                const Attended& forward, const AttentionForm& form,
                                const AttentionGradients& result);

}  // namespace dtrun::tensors
