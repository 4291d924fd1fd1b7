// What attention of bf16 does with a tile of scores, where the processor has products of bf16.
#pragma once

#include "half.h"
#include "kernels/attention_kernel.h"

namespace dtrun::tensors {

/// weights = exp(factor * (score - greatest)), rounded after they are summed; 0 while a query has
/// seen nothing. AttentionKernels::weigh, the scale before it and the rounding after it in one
/// pass. Columns come in groups of kBf16Inner. Only where has_bf16_vectors().
/// @param factor > 0
void weigh_in_bf16(const ScoreTile<float>& scores, float factor, const SeenKeys<float>& seen,
                   BFloat16* weights, std::int64_t weights_row);

/// Two rows beside each other: result[count, 2]. Only where has_bf16_vectors().
/// @param count a multiple of kTileLanes
void pair_bf16(BFloat16* result, const BFloat16* first, const BFloat16* second, std::int64_t count);
/// The other way round: pairs[count, 2] become two rows.
void split_bf16(BFloat16* first, BFloat16* second, const BFloat16* pairs, std::int64_t count);

}  // namespace dtrun::tensors
