#include "dtrun/dtensor/nn/linear.h"

#include <cmath>

#include "dtrun/dtensor/nn/init.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/dtensor/ops/rows.h"
#include "nn/python_text.h"

namespace dtrun::dtensor::nn {

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
