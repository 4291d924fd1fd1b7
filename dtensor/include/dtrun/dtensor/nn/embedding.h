// Embedding: a row of a table for each index. torch.nn.Embedding.
#pragma once

#include <optional>

#include "dtrun/dtensor/nn/module_holder.h"

namespace dtrun::dtensor::nn {

struct EmbeddingOptions {
  std::optional<std::int64_t> padding_idx = {};  ///< whose row is zeros and gets no gradient
  DType dtype = DType::f32;
  Device device = tensors::kCpu;
};

class EmbeddingModule : public Module {
 public:
  /// @throws Error kInvalidArgument for a padding_idx that is no row; negative ones count from the
  /// end
  EmbeddingModule(std::int64_t num_embeddings, std::int64_t embedding_dim,
                  EmbeddingOptions options = {});
  Tensor forward(const Tensor& positions) override;
  /// Standard normal numbers.
  void reset_parameters() const;
  std::string extra_repr() const override;

  const std::int64_t num_embeddings;
  const std::int64_t embedding_dim;
  const std::optional<std::int64_t> padding_idx;
  const Tensor weight;  ///< [num_embeddings, embedding_dim]
};

class Embedding : public ModuleHolder<EmbeddingModule> {
 public:
  using ModuleHolder::ModuleHolder;
  Embedding(std::int64_t num_embeddings, std::int64_t embedding_dim, EmbeddingOptions options = {})
      : ModuleHolder(std::make_shared<EmbeddingModule>(num_embeddings, embedding_dim, options)) {}
};

}  // namespace dtrun::dtensor::nn
