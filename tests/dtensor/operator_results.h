// Operator results: what a call of an operator gives, with its gradients, and how that differs
// from what one rank gets.
#pragma once

#include <string>

#include "dtensor/gradient_check.h"
#include "dtensor/operator_samples.h"
#include "dtrun/dtensor/autograd/grad.h"

namespace dtrun::dtensor {

/// The result, then the gradients of what has one.
inline Tensors results_of(const OperatorSample& sample, const Tensors& inputs) {
  Tensors leaves, wanted;
  for (const Tensor& input : inputs) {
    const bool has_gradient = input.dtype() == DType::f64;
    leaves.push_back(has_gradient ? input.detach().clone().requires_grad_() : input);
    if (has_gradient) wanted.push_back(leaves.back());
  }
  const Tensor result = sample.run(leaves);
  Tensors all = {result};
  if (result.dtype() != DType::f64 || !result.requires_grad()) return all;
  for (const Tensor& gradient : grad({weighed(result)}, wanted)) {
    if (gradient.defined()) all.push_back(gradient);
  }
  return all;
}

/// Of results that may be distributed; empty where there is none. Collective.
/// @param tolerance of the result itself
inline std::string first_difference(const Tensors& found, const Tensors& right,
                                    const Tolerance& tolerance = {1e-9, 1e-9}) {
  if (found.size() != right.size()) return "another number of gradients";
  for (std::size_t i = 0; i < right.size(); ++i) {
    const Tensor whole = found[i].is_distributed() ? found[i].full_tensor() : found[i];
    const std::string wrong = difference(whole.plain_local(), right[i].plain_local(),
                                         i == 0 ? tolerance : Tolerance{1e-9, 1e-9});
    if (!wrong.empty()) return (i == 0 ? "result: " : "gradient: ") + wrong;
  }
  return "";
}

}  // namespace dtrun::dtensor
