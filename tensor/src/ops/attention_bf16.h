// Attention of bf16 where the processor has products of it: weights are rounded to bf16 before they
// meet the values, as PyTorch rounds them, and so are the scores' gradients.
#pragma once

#include "dtrun/tensor/ops/attention.h"
#include "kernels/bf16_product.h"

namespace dtrun::tensors {

/// @param result filled. Only where has_bf16_vectors()
void run_bf16_attention(const LocalTensor& query, const LocalTensor& key, const LocalTensor& value,
                        const AttentionForm& form, const Attended& result);

void run_bf16_attention_backward(const LocalTensor& gradient, const LocalTensor& query,
                                 const LocalTensor& key, const LocalTensor& value,
                                 const Attended& forward, const AttentionForm& form,
                                 const AttentionGradients& result);

}  // namespace dtrun::tensors
