// Attention of a device's tensors: made of the device's operations, for some queries at a time. So
// its memory grows with S times those queries, and the products are the device's library's.
#pragma once

#include "dtrun/tensor/ops/attention.h"

namespace dtrun::tensors {

/// As attention() and attention_backward(), whose arguments have been checked. Scores of f16 and
/// bf16 are rounded to that dtype, as the library's products are; what follows is in f32.
Attended device_attention(const LocalTensor& query, const LocalTensor& key,
                          const LocalTensor& value, const AttentionForm& form);
AttentionGradients device_attention_backward(const LocalTensor& gradient, const LocalTensor& query,
                                             const LocalTensor& key, const LocalTensor& value,
                                             const Attended& forward, const AttentionForm& form);

}  // namespace dtrun::tensors
