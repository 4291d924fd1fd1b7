#include "parallel/ring_attention.h"

#include <optional>
#include <utility>
#include <vector>

#include "dtrun/tensor/ops.h"
#include "dtrun/tensor/ops/pointwise.h"
#include "move/told_calls.h"

namespace dtrun::dtensor {
namespace {

using tensors::Attended;
using tensors::AttentionForm;
using tensors::AttentionGradients;
using Rows = RingPart::Rows;

/// Of all messages of the ring, whose order tells them apart.
constexpr std::uint32_t kRingTag = 0x7c2;

/// Positions of a tensor, in dim -2.
LocalTensor rows_of(const LocalTensor& whole, Rows rows) {
  if (rows == Rows::all) return whole;
  const std::int64_t half = whole.size(-2) / 2;
  return whole.narrow(-2, rows == Rows::first_half ? 0 : half, half);
}
/// Of a tensor without the last dim.
LocalTensor sums_of_rows(const LocalTensor& whole, Rows rows) {
  return rows_of(whole.unsqueeze(-1), rows).squeeze(-1);
}

/// Sums are exact enough in this one.
DType sum_dtype(DType dtype) {
  return dtype == DType::f64 ? DType::f64 : DType::f32;
}

AttentionForm form_of(const Ring& ring, const RingPart& part) {
  AttentionForm form{.scale = ring.scale};
  if (part.is_diagonal) form.causal_from = 0;
  return form;
}

/// Tensors on their way from the rank before to the next one.
class RingStep {
 public:
  /// `sent` stay as they are until wait(); what comes has their forms.
  RingStep(const Ring& ring, std::vector<LocalTensor> sent) : sent_(std::move(sent)) {
    const int size = ring.group.size(), rank = ring.group.rank();
    const int next = (rank + 1) % size, before = (rank + size - 1) % size;
    const ToldCalls told("ring_attention", ring.site);
    for (const LocalTensor& one : sent_) {
      works_.push_back(ring.group.isend(one, next, kRingTag, {}, ring.site));
      received_.push_back(tensors::empty(one.shape(), {one.dtype(), one.device()}));
      works_.push_back(ring.group.irecv(received_.back(), before, kRingTag, {}, ring.site));
    }
  }
  std::vector<LocalTensor> wait() {
    for (const collectives::Work& work : works_) work.wait();
    return std::move(received_);
  }

 private:
  std::vector<LocalTensor> sent_, received_;
  std::vector<collectives::Work> works_;
};

/// Adds what queries find in one more block: weights are proportional to exp(logsumexp).
void merge(const Attended& whole, const Attended& block) {
  const LocalTensor share =
      tensors::sigmoid(tensors::sub(block.logsumexp, whole.logsumexp)).unsqueeze(-1);
  const LocalTensor change = tensors::sub(block.output, whole.output);
  tensors::add_(whole.output, tensors::mul(change, share));
  whole.logsumexp.copy_(tensors::logaddexp(whole.logsumexp, block.logsumexp));
}

}  // namespace

RingPart ring_part(const Ring& ring, int rank, int from) {
  if (!ring.is_causal) return {};
  if (from == rank) return {.is_diagonal = true};
  const bool is_before = from < rank;
  if (ring.order == SequenceOrder::contiguous) {
    const Rows rows = is_before ? Rows::all : Rows::none;
    return {rows, rows};
  }
  // Chunks r and 2p - 1 - r: all queries come after the first chunk of a rank before this one, and
  // before its last; those of the last chunk come after both chunks of a rank behind.
  if (is_before) return {Rows::all, Rows::first_half};
  return {Rows::second_half, Rows::all};
}

Attended ring_forward(const Ring& ring, const LocalTensor& query, const LocalTensor& key,
                      const LocalTensor& value) {
  const int size = ring.group.size(), rank = ring.group.rank();
  Attended whole;
  std::vector<LocalTensor> block{key, value};
  for (int step = 0; step < size; ++step) {
    const bool is_last = step + 1 == size;
    RingStep on_the_way(ring, is_last ? std::vector<LocalTensor>() : block);
    const RingPart part = ring_part(ring, rank, (rank - step + size) % size);
    if (part.queries != Rows::none) {
      const Attended found =
          tensors::attention(rows_of(query, part.queries), rows_of(block[0], part.keys),
                             rows_of(block[1], part.keys), form_of(ring, part));
      if (step == 0) {
        whole = {found.output.to(sum_dtype(query.dtype())), found.logsumexp};
      } else {
        merge({rows_of(whole.output, part.queries), sums_of_rows(whole.logsumexp, part.queries)},
              found);
      }
    }
    if (!is_last) block = on_the_way.wait();
  }
  return {whole.output.to(query.dtype()), whole.logsumexp};
}

AttentionGradients ring_backward(const Ring& ring, const LocalTensor& gradient,
                                 const LocalTensor& query, const LocalTensor& key,
                                 const LocalTensor& value, const Attended& forward) {
  const int size = ring.group.size(), rank = ring.group.rank();
  const DType dtype = sum_dtype(query.dtype());
  const auto zeros_of = [&](const LocalTensor& like) {
    return tensors::zeros(like.shape(), {dtype, like.device()});
  };
  const LocalTensor of_queries = zeros_of(query);
  std::vector<LocalTensor> block{key, value};
  // Of the block at hand: the sums of the ranks that had it before. They follow it, a step behind.
  std::vector<LocalTensor> sums{zeros_of(key), zeros_of(value)};
  std::optional<RingStep> sums_on_the_way;
  for (int step = 0; step < size; ++step) {
    const bool is_last = step + 1 == size;
    RingStep on_the_way(ring, is_last ? std::vector<LocalTensor>() : block);
    const RingPart part = ring_part(ring, rank, (rank - step + size) % size);
    std::optional<AttentionGradients> found;
    if (part.queries != Rows::none) {
      found = tensors::attention_backward(
          rows_of(gradient, part.queries), rows_of(query, part.queries),
          rows_of(block[0], part.keys), rows_of(block[1], part.keys),
          {rows_of(forward.output, part.queries), sums_of_rows(forward.logsumexp, part.queries)},
          form_of(ring, part));
    }
    if (sums_on_the_way) sums = sums_on_the_way->wait();
    if (found) {
      tensors::add_(rows_of(of_queries, part.queries), found->query.to(dtype));
      tensors::add_(rows_of(sums[0], part.keys), found->key.to(dtype));
      tensors::add_(rows_of(sums[1], part.keys), found->value.to(dtype));
    }
    if (!is_last) block = on_the_way.wait();
    if (size > 1) sums_on_the_way.emplace(ring, sums);
  }
  if (sums_on_the_way) sums = sums_on_the_way->wait();
  return {of_queries.to(query.dtype()), sums[0].to(key.dtype()), sums[1].to(value.dtype())};
}

}  // namespace dtrun::dtensor
