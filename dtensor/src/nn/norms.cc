#include "dtrun/dtensor/nn/norms.h"

#include <utility>

#include "dtrun/dtensor/nn/init.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/dtensor/ops/rows.h"
#include "nn/python_text.h"

namespace dtrun::dtensor::nn {

LayerNormModule::LayerNormModule(Shape shape, LayerNormOptions options)
    : normalized_shape(std::move(shape)),
      eps(options.eps),
      weight(register_parameter("weight",
                                options.elementwise_affine
                                    ? empty(normalized_shape, {options.dtype, options.device})
                                    : Tensor())),
      bias(register_parameter("bias", options.elementwise_affine && options.bias
                                          ? empty(normalized_shape, {options.dtype, options.device})
                                          : Tensor())) {
  reset_parameters();
}

void LayerNormModule::reset_parameters() const {
  if (weight.defined()) init::ones_(weight);
  if (bias.defined()) init::zeros_(bias);
}

Tensor LayerNormModule::forward(const Tensor& input) {
  return layer_norm(input, normalized_shape, weight, bias, eps);
}

std::string LayerNormModule::extra_repr() const {
  return python_tuple(normalized_shape) + ", eps=" + python_number(eps) +
         ", elementwise_affine=" + python_bool(weight.defined()) +
         ", bias=" + python_bool(bias.defined());
}

RMSNormModule::RMSNormModule(Shape shape, RMSNormOptions options)
    : normalized_shape(std::move(shape)),
      eps(options.eps),
      weight(register_parameter("weight",
                                options.elementwise_affine
                                    ? empty(normalized_shape, {options.dtype, options.device})
                                    : Tensor())) {
  reset_parameters();
}

void RMSNormModule::reset_parameters() const {
  if (weight.defined()) init::ones_(weight);
}

Tensor RMSNormModule::forward(const Tensor& input) {
  return rms_norm(input, normalized_shape, weight, eps);
}

std::string RMSNormModule::extra_repr() const {
  return python_tuple(normalized_shape) + ", eps=" + (eps ? python_number(*eps) : "None") +
         ", elementwise_affine=" + python_bool(weight.defined());
}

}  // namespace dtrun::dtensor::nn
