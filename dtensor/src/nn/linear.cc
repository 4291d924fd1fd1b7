#include "dtrun/dtensor/nn/linear.h"

#include <cmath>

#include "dtrun/base/error.h"
#include "dtrun/dtensor/nn/init.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/dtensor/ops/rows.h"
#include "nn/python_text.h"

namespace dtrun::dtensor::nn {

namespace {

const Tensor& checked_weight(const Tensor& weight, const Tensor& bias) {
  const bool fits = weight.dim() == 2 && (!bias.defined() || bias.shape() == Shape{weight.size(0)});
  if (fits) return weight;
  throw base::Error(
      base::ErrorCode::kInvalidArgument,
      "a Linear of a weight of shape " + tensors::shape_to_string(weight.shape()) +
          (bias.defined() ? " and a bias of " + tensors::shape_to_string(bias.shape()) : ""),
      "they are [out_features, in_features] and [out_features]",
      "t() of a weight that is [in_features, out_features]");
}

}  // namespace

LinearModule::LinearModule(const Tensor& its_weight, const Tensor& its_bias)
    : in_features(checked_weight(its_weight, its_bias).size(1)),
      out_features(its_weight.size(0)),
      weight(register_parameter("weight", its_weight)),
      bias(register_parameter("bias", its_bias)) {}

LinearModule::LinearModule(std::int64_t inputs, std::int64_t outputs, LinearOptions options)
    : in_features(inputs),
      out_features(outputs),
      weight(
          register_parameter("weight", empty({outputs, inputs}, {options.dtype, options.device}))),
      bias(register_parameter(
          "bias", options.bias ? empty({outputs}, {options.dtype, options.device}) : Tensor())) {
  reset_parameters();
}

void LinearModule::reset_parameters() const {
  init::kaiming_uniform_(weight, std::sqrt(5.0));
  if (!bias.defined()) return;
  const double bound = in_features > 0 ? 1 / std::sqrt(static_cast<double>(in_features)) : 0;
  init::uniform_(bias, -bound, bound);
}

Tensor LinearModule::forward(const Tensor& input) {
  return linear(input, weight, bias);
}

std::string LinearModule::extra_repr() const {
  return "in_features=" + std::to_string(in_features) +
         ", out_features=" + std::to_string(out_features) + ", bias=" + python_bool(bias.defined());
}

}  // namespace dtrun::dtensor::nn
