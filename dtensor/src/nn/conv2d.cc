#include "dtrun/dtensor/nn/conv2d.h"

#include <cmath>

#include "dtrun/base/error.h"
#include "dtrun/dtensor/nn/init.h"
#include "dtrun/dtensor/ops/creation.h"
#include "nn/python_text.h"

namespace dtrun::dtensor::nn {
namespace {

/// Of the weight. Refused here, for a module is made long before it is called.
Shape checked_weight_shape(std::int64_t in, std::int64_t out, HeightWidth window,
                           std::int64_t groups) {
  if (groups > 0 && in % groups == 0 && out % groups == 0)
    return {out, in / groups, window.height, window.width};
  throw base::Error(base::ErrorCode::kInvalidArgument,
                    "a Conv2d from " + std::to_string(in) + " to " + std::to_string(out) +
                        " channels in " + std::to_string(groups) + " groups",
                    "each group has as many of either", "a divisor of both");
}

std::string pair_text(const HeightWidth& pair) {
  return python_tuple({pair.height, pair.width});
}
bool both_are(const HeightWidth& pair, std::int64_t value) {
  return pair.height == value && pair.width == value;
}

}  // namespace

Conv2dModule::Conv2dModule(std::int64_t in, std::int64_t out, HeightWidth window,
                           Conv2dOptions its_options)
    : in_channels(in),
      out_channels(out),
      kernel_size(window),
      options(its_options),
      weight(register_parameter("weight",
                                empty(checked_weight_shape(in, out, window, its_options.groups),
                                      {its_options.dtype, its_options.device}))),
      bias(register_parameter("bias", its_options.bias
                                          ? empty({out}, {its_options.dtype, its_options.device})
                                          : Tensor())) {
  reset_parameters();
}

void Conv2dModule::reset_parameters() const {
  init::kaiming_uniform_(weight, std::sqrt(5.0));
  const auto fan = static_cast<double>(init::fans_of(weight.shape()).in);
  if (!bias.defined() || fan == 0) return;
  init::uniform_(bias, -1 / std::sqrt(fan), 1 / std::sqrt(fan));
}

Tensor Conv2dModule::forward(const Tensor& input) {
  return conv2d(input, weight, bias,
                {.stride = options.stride,
                 .padding = options.padding,
                 .dilation = options.dilation,
                 .groups = options.groups});
}

std::string Conv2dModule::extra_repr() const {
  std::string text = std::to_string(in_channels) + ", " + std::to_string(out_channels) +
                     ", kernel_size=" + pair_text(kernel_size) +
                     ", stride=" + pair_text(options.stride);
  if (!both_are(options.padding, 0)) text += ", padding=" + pair_text(options.padding);
  if (!both_are(options.dilation, 1)) text += ", dilation=" + pair_text(options.dilation);
  if (options.groups != 1) text += ", groups=" + std::to_string(options.groups);
  return bias.defined() ? text : text + ", bias=False";
}

}  // namespace dtrun::dtensor::nn
