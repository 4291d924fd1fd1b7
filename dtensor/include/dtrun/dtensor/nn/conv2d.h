// Conv2d: convolution of images. torch.nn.Conv2d.
#pragma once

#include "dtrun/dtensor/nn/module_holder.h"
#include "dtrun/dtensor/ops/convolution.h"

namespace dtrun::dtensor::nn {

struct Conv2dOptions {
  HeightWidth stride = 1;
  HeightWidth padding = 0;  ///< zeros on either side
  HeightWidth dilation = 1;
  std::int64_t groups = 1;  ///< of channels; each sees its own
  bool bias = true;
  DType dtype = DType::f32;
  Device device = tensors::kCpu;
};

class Conv2dModule : public Module {
 public:
  /// @throws Error kInvalidArgument where groups do not divide both channels
  Conv2dModule(std::int64_t in_channels, std::int64_t out_channels, HeightWidth kernel_size,
               Conv2dOptions options = {});
  Tensor forward(const Tensor& input) override;
  /// Numbers of [-bound, bound), bound = 1 / sqrt(in_channels / groups * window).
  void reset_parameters() const;
  std::string extra_repr() const override;

  const std::int64_t in_channels;
  const std::int64_t out_channels;
  const HeightWidth kernel_size;
  const Conv2dOptions options;
  const Tensor weight;  ///< [out_channels, in_channels / groups, height, width]
  const Tensor bias;    ///< [out_channels], or undefined
};

class Conv2d : public ModuleHolder<Conv2dModule> {
 public:
  using ModuleHolder::ModuleHolder;
  Conv2d(std::int64_t in_channels, std::int64_t out_channels, HeightWidth kernel_size,
         Conv2dOptions options = {})
      : ModuleHolder(
            std::make_shared<Conv2dModule>(in_channels, out_channels, kernel_size, options)) {}
};

}  // namespace dtrun::dtensor::nn
