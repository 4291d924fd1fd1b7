#include "ops/device_attention.h"

#include <algorithm>
#include <limits>

#include "device_product.h"
#include "dtrun/tensor/ops.h"
#include "ops/attention_scores.h"

namespace dtrun::tensors {
namespace {

constexpr std::int64_t kQueriesAtOnce = 256;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

DType compute_dtype(const LocalTensor& query) {
  return query.dtype() == DType::f64 ? DType::f64 : DType::f32;
}

/// Some queries, and the keys that one of them sees: the first ones.
struct Block {
  std::int64_t first, queries, keys;

  LocalTensor queries_of(const LocalTensor& a) const {
    return a.narrow(a.dim() - 2, first, queries);
  }
  LocalTensor keys_of(const LocalTensor& a) const { return a.narrow(a.dim() - 2, 0, keys); }
};

template <typename Use>
void for_each_block(const LocalTensor& query, const LocalTensor& key, const AttentionForm& form,
                    const Use& use) {
  const std::int64_t rows = query.size(-2), keys = key.size(-2);
  for (std::int64_t first = 0; first < rows; first += kQueriesAtOnce) {
    Block block{first, std::min(kQueriesAtOnce, rows - first), keys};
    if (form.causal_from) {
      block.keys = std::clamp<std::int64_t>(*form.causal_from + first + block.queries, 0, keys);
    }
    use(block);
  }
}

/// [..., queries, keys]; minus infinity where a key does not count.
LocalTensor scores_of(const LocalTensor& query, const LocalTensor& key, const AttentionForm& form,
                      const Block& block) {
  const Device device = query.device();
  LocalTensor scores =
      device_product(block.queries_of(query), block.keys_of(key).transpose(-2, -1), form.scale);
  if (form.mask.defined()) {
    const Shape whole = with_batch_of(query, query.size(-2), key.size(-2));
    const LocalTensor mask =
        block.queries_of(form.mask.expand(whole)).narrow(scores.dim() - 1, 0, block.keys);
    scores = mask.dtype() == DType::boolean ? where(mask, scores, -kInfinity)
                                            : add(scores, mask.to(scores.dtype()));
  }
  if (!form.causal_from) return scores;
  const LocalTensor last =
      add(arange(block.queries, {DType::i64, device}), *form.causal_from + block.first);
  return where(le(arange(block.keys, {DType::i64, device}), last.unsqueeze(-1)), scores,
               -kInfinity);
}

}  // namespace

Attended device_attention(const LocalTensor& query, const LocalTensor& key,
                          const LocalTensor& value, const AttentionForm& form) {
  const Shape output = with_batch_of(query, query.size(-2), value.size(-1));
  const Shape rows(query.shape().begin(), query.shape().end() - 1);
  const Attended result{zeros(output, {query.dtype(), query.device()}),
                        full(rows, kInfinity, {compute_dtype(query), query.device()})};
  for_each_block(query, key, form, [&](const Block& block) {
    if (block.keys == 0) return;
    const LocalTensor scores = scores_of(query, key, form, block);
    const LocalTensor sums = logsumexp(scores, {-1}, true);
    // A query that sees nothing has weights of 0.
    const LocalTensor logsumexps = where(eq(sums, -kInfinity), kInfinity, sums);
    const LocalTensor weights = exp(sub(scores, logsumexps)).to(query.dtype());
    block.queries_of(result.output).copy_(matmul(weights, block.keys_of(value)));
    result.logsumexp.narrow(result.logsumexp.dim() - 1, block.first, block.queries)
        .copy_(logsumexps.squeeze(-1));
  });
  return result;
}

AttentionGradients device_attention_backward(const LocalTensor& gradient, const LocalTensor& query,
                                             const LocalTensor& key, const LocalTensor& value,
                                             const Attended& forward, const AttentionForm& form) {
  const DType dtype = query.dtype(), computed = compute_dtype(query);
  const LocalTensor query_gradient = zeros(query.shape(), {dtype, query.device()});
  // Summed over the blocks.
  const LocalTensor key_gradient = zeros(key.shape(), {computed, query.device()});
  const LocalTensor value_gradient = zeros(value.shape(), {computed, query.device()});
  for_each_block(query, key, form, [&](const Block& block) {
    if (block.keys == 0) return;
    const LocalTensor logsumexps =
        forward.logsumexp.narrow(forward.logsumexp.dim() - 1, block.first, block.queries)
            .unsqueeze(-1);
    const LocalTensor weights = exp(sub(scores_of(query, key, form, block), logsumexps));
    const LocalTensor of_output = block.queries_of(gradient);
    // Of the result and its gradient: the sum of weight times slope over all keys.
    const LocalTensor dots =
        sum(mul(of_output.to(computed), block.queries_of(forward.output).to(computed)), {-1}, true);
    const LocalTensor slopes = device_product(of_output, block.keys_of(value).transpose(-2, -1), 1);
    const LocalTensor of_scores = mul(mul(weights, sub(slopes, dots)), form.scale).to(dtype);
    block.queries_of(query_gradient).copy_(matmul(of_scores, block.keys_of(key)));
    const auto add_to = [&](const LocalTensor& sums, const LocalTensor& left,
                            const LocalTensor& right) {
      const LocalTensor part = block.keys_of(sums);
      part.copy_(add(part, device_product(left.transpose(-2, -1), right, 1)));
    };
    add_to(key_gradient, of_scores, block.queries_of(query));
    add_to(value_gradient, weights.to(dtype), of_output);
  });
  return {query_gradient, key_gradient.to(dtype), value_gradient.to(dtype)};
}

}  // namespace dtrun::tensors
