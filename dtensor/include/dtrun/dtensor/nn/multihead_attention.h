// MultiheadAttention: torch.nn.MultiheadAttention. Samples may be sharded. Queries, keys and values
// have one common weight, whose rows cannot be sharded by heads. A model whose heads are divided
// between ranks uses a Linear for each of the three.
#pragma once

#include "dtrun/dtensor/nn/linear.h"

namespace dtrun::dtensor::nn {

struct MultiheadAttentionOptions {
  double dropout = 0;  ///< of the weights, in training
  bool bias = true;
  bool batch_first = false;  ///< [samples, positions, embed_dim], else [positions, samples, ...]
  bool is_causal = false;    ///< a query sees the keys up to its own position; no attn_mask then
  /// Grouped queries: the number of heads of keys and values, each of which serves several heads of
  /// queries. 0: num_heads.
  std::int64_t num_kv_heads = 0;
  DType dtype = DType::f32;
  Device device = tensors::kCpu;
};

class MultiheadAttentionModule : public Module {
 public:
  /// @throws Error kInvalidArgument where the heads do not divide embed_dim, or num_kv_heads the
  /// heads
  MultiheadAttentionModule(std::int64_t embed_dim, std::int64_t num_heads,
                           MultiheadAttentionOptions options = {});
  /// Self-attention.
  Tensor forward(const Tensor& input) override;
  /// query, key, value, and optionally key_padding_mask [samples, keys] and attn_mask [queries,
  /// keys] or [samples * heads, queries, keys]. In a bool mask true means not seen, as in PyTorch;
  /// a floating-point mask is added to the scores. Without samples all tensors lose that dim.
  /// @return the result alone: the weights are not stored
  Tensors forward_all(const Tensors& inputs) override;
  /// As PyTorch's: xavier_uniform_, biases 0.
  void reset_parameters() const;

  const std::int64_t embed_dim;
  const std::int64_t num_heads;
  const std::int64_t num_kv_heads;
  const MultiheadAttentionOptions options;
  /// Of queries, keys and values: [embed_dim + 2 * num_kv_heads * (embed_dim / num_heads),
  /// embed_dim], which is [3 * embed_dim, embed_dim] where each head has its own keys.
  const Tensor in_proj_weight;
  const Tensor in_proj_bias;  ///< as many rows, or undefined
  const Linear out_proj;

 private:
  Tensor attend(const Tensors& qkv, const Tensor& key_padding_mask, const Tensor& attn_mask) const;
  /// Of scaled_dot_product_attention's meaning. @param sizes samples, queries, keys
  Tensor joint_mask(const Tensor& key_padding_mask, const Tensor& attn_mask,
                    const Shape& sizes) const;
};

class MultiheadAttention : public ModuleHolder<MultiheadAttentionModule> {
 public:
  using ModuleHolder::ModuleHolder;
  MultiheadAttention(std::int64_t embed_dim, std::int64_t num_heads,
                     MultiheadAttentionOptions options = {})
      : ModuleHolder(std::make_shared<MultiheadAttentionModule>(embed_dim, num_heads, options)) {}
};

}  // namespace dtrun::dtensor::nn
