// RotaryEmbedding: turns pairs of numbers by an angle that grows with the position, so that
// attention sees how far apart two positions are (Su et al., "RoFormer", 2021).
#pragma once

#include "dtrun/dtensor/nn/module_holder.h"

namespace dtrun::dtensor::nn {

/// Which numbers of a head are turned together.
enum class RotaryPairs : unsigned char {
  halves,    ///< i and i + dim / 2: HuggingFace's Llama, GPT-NeoX
  adjacent,  ///< 2 i and 2 i + 1: the paper, Meta's Llama, torchtune
};

struct RotaryEmbeddingOptions {
  double base = 10000;  ///< pair i of dim / 2 is turned by position * base^(-2 i / dim)
  RotaryPairs pairs = RotaryPairs::halves;
};

/// Of queries or keys [..., positions, dim], plain or on a mesh. It has no parameters.
class RotaryEmbeddingModule : public Module {
 public:
  /// @throws Error kInvalidArgument for an odd dim and a base that is not above 0
  explicit RotaryEmbeddingModule(std::int64_t dim, RotaryEmbeddingOptions options = {});
  /// At positions 0, 1, ...
  Tensor forward(const Tensor& input) override;
  /// The second tensor gives the positions: plain, [positions], such as context_positions() for a
  /// part of a sequence.
  Tensors forward_all(const Tensors& inputs) override;
  std::string extra_repr() const override;

  const std::int64_t dim;
  const RotaryEmbeddingOptions options;

 private:
  Tensor turned(const Tensor& input, const Tensor& positions) const;
};

class RotaryEmbedding : public ModuleHolder<RotaryEmbeddingModule> {
 public:
  using ModuleHolder::ModuleHolder;
  explicit RotaryEmbedding(std::int64_t dim, RotaryEmbeddingOptions options = {})
      : ModuleHolder(std::make_shared<RotaryEmbeddingModule>(dim, options)) {}
};

}  // namespace dtrun::dtensor::nn
