// Linear: x * weight^T + bias. torch.nn.Linear.
#pragma once

#include "dtrun/dtensor/nn/module_holder.h"

namespace dtrun::dtensor::nn {

struct LinearOptions {
  bool bias = true;
  DType dtype = DType::f32;
  Device device = tensors::kCpu;
};

class LinearModule : public Module {
 public:
  LinearModule(std::int64_t in_features, std::int64_t out_features, LinearOptions options = {});
  /// Uses existing tensors, such as an Embedding's weight: both modules train the same tensor.
  /// @throws Error kInvalidArgument for shapes that do not fit
  explicit LinearModule(const Tensor& weight, const Tensor& bias = {});
  Tensor forward(const Tensor& input) override;
  /// Numbers of [-1 / sqrt(in_features), 1 / sqrt(in_features)).
  void reset_parameters() const;
  std::string extra_repr() const override;

  const std::int64_t in_features;
  const std::int64_t out_features;
  const Tensor weight;  ///< [out_features, in_features]
  const Tensor bias;    ///< [out_features], or undefined
};

class Linear : public ModuleHolder<LinearModule> {
 public:
  using ModuleHolder::ModuleHolder;
  Linear(std::int64_t in_features, std::int64_t out_features, LinearOptions options = {})
      : ModuleHolder(std::make_shared<LinearModule>(in_features, out_features, options)) {}
  explicit Linear(const Tensor& weight, const Tensor& bias = {})
      : ModuleHolder(std::make_shared<LinearModule>(weight, bias)) {}
};

}  // namespace dtrun::dtensor::nn
