#include "dtrun/dtensor/nn/multihead_attention.h"

#include <limits>

#include "dtrun/base/error.h"
#include "dtrun/dtensor/nn/init.h"
#include "dtrun/dtensor/ops/attention.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/dtensor/ops/rows.h"

namespace dtrun::dtensor::nn {
namespace {

using base::Error;
using base::ErrorCode;

std::int64_t checked_heads(std::int64_t embed_dim, std::int64_t heads) {
  if (heads > 0 && embed_dim % heads == 0) return heads;
  throw Error(ErrorCode::kInvalidArgument,
              "a MultiheadAttention of " + std::to_string(embed_dim) + " numbers in " +
                  std::to_string(heads) + " heads",
              "each head has as many of them", "a divisor");
}

std::int64_t checked_kv_heads(std::int64_t heads, std::int64_t kv_heads) {
  if (kv_heads == 0) return heads;
  if (kv_heads > 0 && heads % kv_heads == 0) return kv_heads;
  throw Error(ErrorCode::kInvalidArgument,
              "a MultiheadAttention of " + std::to_string(heads) + " heads with " +
                  std::to_string(kv_heads) + " of keys and values",
              "each of these serves as many of those", "a divisor of the heads");
}

/// Rows of in_proj_weight: of queries, keys and values.
std::vector<std::int64_t> projections(std::int64_t size, std::int64_t heads,
                                      std::int64_t kv_heads) {
  const std::int64_t keys = size / heads * kv_heads;
  return {size, keys, keys};
}

/// [samples, positions, embed_dim] to [samples, heads, positions, of one head].
Tensor in_heads(const Tensor& x, std::int64_t heads) {
  return x.reshape({x.size(0), x.size(1), heads, x.size(2) / heads}).transpose(1, 2);
}

bool is_boolean(const Tensor& mask) {
  return mask.dtype() == DType::boolean;
}

/// To add to the scores.
Tensor as_numbers(const Tensor& mask, DType dtype) {
  if (!is_boolean(mask)) return mask;
  return mask.to(dtype).mul(0).masked_fill(mask, -std::numeric_limits<double>::infinity());
}

}  // namespace

MultiheadAttentionModule::MultiheadAttentionModule(std::int64_t size, std::int64_t heads,
                                                   MultiheadAttentionOptions its_options)
    : embed_dim(size),
      num_heads(checked_heads(size, heads)),
      num_kv_heads(checked_kv_heads(heads, its_options.num_kv_heads)),
      options(its_options),
      in_proj_weight(register_parameter("in_proj_weight",
                                        empty({size + 2 * (size / heads * num_kv_heads), size},
                                              {its_options.dtype, its_options.device}))),
      in_proj_bias(register_parameter(
          "in_proj_bias", its_options.bias ? empty({in_proj_weight.size(0)},
                                                   {its_options.dtype, its_options.device})
                                           : Tensor())),
      out_proj(register_module("out_proj", Linear(size, size,
                                                  {.bias = its_options.bias,
                                                   .dtype = its_options.dtype,
                                                   .device = its_options.device}))) {
  reset_parameters();
}

void MultiheadAttentionModule::reset_parameters() const {
  init::xavier_uniform_(in_proj_weight);
  if (in_proj_bias.defined()) init::zeros_(in_proj_bias);
  if (out_proj->bias.defined()) init::zeros_(out_proj->bias);
}

Tensor MultiheadAttentionModule::forward(const Tensor& input) {
  return forward_all({input, input, input})[0];
}

Tensors MultiheadAttentionModule::forward_all(const Tensors& inputs) {
  if (inputs.size() == 1) return {forward(inputs[0])};
  if (inputs.size() < 3 || inputs.size() > 5) {
    throw Error(ErrorCode::kInvalidArgument,
                "MultiheadAttention was called with " + std::to_string(inputs.size()) + " tensors",
                "it takes query, key, value, key_padding_mask and attn_mask, or one for the first "
                "three",
                "an undefined tensor in place of a mask");
  }
  const Tensor key_padding_mask = inputs.size() > 3 ? inputs[3] : Tensor();
  const Tensor attn_mask = inputs.size() > 4 ? inputs[4] : Tensor();
  const bool has_samples = inputs[0].dim() != 2;
  Tensors qkv;
  for (std::size_t i = 0; i < 3; ++i) {
    if (!has_samples) qkv.push_back(inputs[i].unsqueeze(0));
    if (has_samples) qkv.push_back(options.batch_first ? inputs[i] : inputs[i].transpose(0, 1));
  }
  const bool unsqueezes = !has_samples && key_padding_mask.defined();
  const Tensor result =
      attend(qkv, unsqueezes ? key_padding_mask.unsqueeze(0) : key_padding_mask, attn_mask);
  if (!has_samples) return {result.squeeze(0)};
  return {options.batch_first ? result : result.transpose(0, 1)};
}

Tensor MultiheadAttentionModule::attend(const Tensors& qkv, const Tensor& key_padding_mask,
                                        const Tensor& attn_mask) const {
  const std::vector<std::int64_t> rows = projections(embed_dim, num_heads, num_kv_heads);
  const Tensors weights = split(in_proj_weight, rows);
  const Tensors biases = in_proj_bias.defined() ? split(in_proj_bias, rows) : Tensors(3);
  Tensors heads;
  for (std::size_t i = 0; i < 3; ++i) {
    heads.push_back(
        in_heads(linear(qkv[i], weights[i], biases[i]), i == 0 ? num_heads : num_kv_heads));
  }
  const Shape sizes = {qkv[0].size(0), qkv[0].size(1), qkv[1].size(1)};
  const Tensor seen =
      scaled_dot_product_attention(heads[0], heads[1], heads[2],
                                   {.attn_mask = joint_mask(key_padding_mask, attn_mask, sizes),
                                    .is_causal = options.is_causal,
                                    .dropout_p = is_training() ? options.dropout : 0,
                                    .enable_gqa = num_kv_heads != num_heads});
  return out_proj(seen.transpose(1, 2).reshape({sizes[0], sizes[1], embed_dim}));
}

Tensor MultiheadAttentionModule::joint_mask(const Tensor& key_padding_mask, const Tensor& attn_mask,
                                            const Shape& sizes) const {
  const Tensor keys =
      key_padding_mask.defined() ? key_padding_mask.reshape({sizes[0], 1, 1, sizes[2]}) : Tensor();
  const Tensor pairs = attn_mask.defined() && attn_mask.dim() == 3
                           ? attn_mask.reshape({sizes[0], num_heads, sizes[1], sizes[2]})
                           : attn_mask;
  if (!keys.defined() && !pairs.defined()) return {};
  if (keys.defined() && pairs.defined()) {
    if (is_boolean(keys) && is_boolean(pairs)) return keys.logical_or(pairs).logical_not();
    const DType dtype = in_proj_weight.dtype();
    return as_numbers(keys, dtype) + as_numbers(pairs, dtype);
  }
  const Tensor& only = keys.defined() ? keys : pairs;
  return is_boolean(only) ? only.logical_not() : only;
}

}  // namespace dtrun::dtensor::nn
