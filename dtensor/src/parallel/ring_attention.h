// One rank's part of ring attention: forward and backward over blocks of keys and values that come
// from the rank before and go to the next one.
#pragma once

#include "dtrun/collectives/process_group.h"
#include "dtrun/dtensor/parallel/context_parallel.h"
#include "dtrun/tensor/ops/attention.h"

namespace dtrun::dtensor {

struct Ring {
  ProcessGroup group;
  SequenceOrder order;
  double scale;
  bool is_causal;
  Tensor::Site site;
};

/// Of a rank's queries and the keys of one rank: what part of each takes part.
struct RingPart {
  enum class Rows : unsigned char { none, all, first_half, second_half };
  Rows queries = Rows::all;
  Rows keys = Rows::all;
  bool is_diagonal = false;  ///< a query sees the keys up to its own
};
RingPart ring_part(const Ring& ring, int rank, int from);

/// query [..., L, E], key and value [..., S, E]; contiguous, with the same dims before.
tensors::Attended ring_forward(const Ring& ring, const LocalTensor& query, const LocalTensor& key,
                               const LocalTensor& value);
/// @param forward of the same inputs
tensors::AttentionGradients ring_backward(const Ring& ring, const LocalTensor& gradient,
                                          const LocalTensor& query, const LocalTensor& key,
                                          const LocalTensor& value,
                                          const tensors::Attended& forward);

}  // namespace dtrun::dtensor
