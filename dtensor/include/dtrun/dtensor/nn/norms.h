// Norms over the last dims. torch.nn.LayerNorm, torch.nn.RMSNorm.
#pragma once

#include <optional>

#include "dtrun/dtensor/nn/module_holder.h"

namespace dtrun::dtensor::nn {

struct LayerNormOptions {
  double eps = 1e-5;
  bool elementwise_affine = true;  ///< false: neither weight nor bias
  bool bias = true;
  DType dtype = DType::f32;
  Device device = tensors::kCpu;
};

class LayerNormModule : public Module {
 public:
  LayerNormModule(Shape normalized_shape, LayerNormOptions options = {});
  Tensor forward(const Tensor& input) override;
  /// Ones and zeros.
  void reset_parameters() const;
  std::string extra_repr() const override;

  const Shape normalized_shape;
  const double eps;
  const Tensor weight;  ///< of normalized_shape, or undefined
  const Tensor bias;    ///< alike
};

class LayerNorm : public ModuleHolder<LayerNormModule> {
 public:
  using ModuleHolder::ModuleHolder;
  /// Over the last dim, of that size.
  LayerNorm(std::int64_t size, LayerNormOptions options = {}) : LayerNorm(Shape{size}, options) {}
  LayerNorm(Shape normalized_shape, LayerNormOptions options = {})
      : ModuleHolder(std::make_shared<LayerNormModule>(std::move(normalized_shape), options)) {}
};

struct RMSNormOptions {
  std::optional<double> eps = {};  ///< not given: the smallest step above 1
  bool elementwise_affine = true;  ///< false: no weight
  DType dtype = DType::f32;
  Device device = tensors::kCpu;
};

class RMSNormModule : public Module {
 public:
  RMSNormModule(Shape normalized_shape, RMSNormOptions options = {});
  Tensor forward(const Tensor& input) override;
  /// Ones.
  void reset_parameters() const;
  std::string extra_repr() const override;

  const Shape normalized_shape;
  const std::optional<double> eps;
  const Tensor weight;  ///< of normalized_shape, or undefined
};

class RMSNorm : public ModuleHolder<RMSNormModule> {
 public:
  using ModuleHolder::ModuleHolder;
  /// Over the last dim, of that size.
  RMSNorm(std::int64_t size, RMSNormOptions options = {}) : RMSNorm(Shape{size}, options) {}
  RMSNorm(Shape normalized_shape, RMSNormOptions options = {})
      : ModuleHolder(std::make_shared<RMSNormModule>(std::move(normalized_shape), options)) {}
};

}  // namespace dtrun::dtensor::nn
