// The gradient of every operator, and the gradient of that, against finite differences.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "dtensor/gradient_check.h"
#include "dtensor/operator_samples.h"
#include "dtrun/base/error.h"
#include "dtrun/dtensor/autograd/grad.h"

namespace dtrun::dtensor {
namespace {

constexpr double kStep = 1e-6;

/// Whole numbers stand on the jumps of quotients and remainders, few digits know no such small
/// steps, and classes' weights have no gradient; PyTorch's recorded cases have their gradients.
bool has_differences(const OperatorSample& sample) {
  static const std::set<std::string> kHaveNone = {"floor_divide",
                                                  "floor_divide_",
                                                  "trunc_divide",
                                                  "remainder",
                                                  "remainder_",
                                                  "fmod",
                                                  "fmod_",
                                                  "floor_divide (number)",
                                                  "trunc_divide (number)",
                                                  "remainder (number)",
                                                  "fmod (number)",
                                                  "floor_divide_ (number)",
                                                  "remainder_ (number)",
                                                  "fmod_ (number)",
                                                  "remainder of a number",
                                                  "div, rounded",
                                                  "div, truncated",
                                                  "to",
                                                  "to (f32 and back)",
                                                  "to (f16)",
                                                  "to (bf16)",
                                                  "cross_entropy, weight",
                                                  "cross_entropy, weight, none",
                                                  "nll_loss, weight",
                                                  "nll_loss, weight, none",
                                                  "cross_entropy, label_smoothing, weight"};
  return !kHaveNone.contains(sample.name) &&
         tensors::is_floating_point(sample.run(sample.inputs).dtype());
}

Tensors leaves_of(const Tensors& inputs) {
  Tensors leaves;
  for (const Tensor& input : inputs) {
    leaves.push_back(input.dtype() == DType::f64 ? input.detach().clone().requires_grad_() : input);
  }
  return leaves;
}
Tensors wanting(const Tensors& leaves) {
  Tensors wanted;
  std::ranges::copy_if(leaves, std::back_inserter(wanted),
                       [](const Tensor& leaf) { return leaf.requires_grad(); });
  return wanted;
}

/// A number made of the inputs; its gradient is compared.
using Measure = std::function<Tensor(const Tensors& inputs)>;

std::string wrong_gradient(const Measure& measure, const Tensors& inputs) {
  const Tensors leaves = leaves_of(inputs);
  const Tensor measured = measure(leaves);
  if (!measured.requires_grad()) return "";
  const Tensors gradients = grad({measured}, wanting(leaves));
  std::size_t which = 0;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!leaves[i].requires_grad()) continue;
    const Tensor& gradient = gradients[which++];
    const std::vector<double> found = gradient.defined()
                                          ? gradient.to_vector()
                                          : std::vector<double>(leaves[i].to_vector().size());
    for (std::size_t element = 0; element < found.size(); ++element) {
      const auto moved = [&](double by) {
        Tensors others = leaves_of(inputs);
        std::vector<double> values = inputs[i].to_vector();
        values[element] += by;
        others[i] = tensor_from(values, inputs[i].shape(), DType::f64).requires_grad_();
        return measure(others).item();
      };
      const double right = (moved(kStep) - moved(-kStep)) / (2 * kStep);
      if (std::abs(found[element] - right) <= 2e-6 * (1 + std::abs(right))) continue;
      return "input " + std::to_string(i) + " element " + std::to_string(element) + ": " +
             std::to_string(found[element]) + ", not " + std::to_string(right);
    }
  }
  return "";
}

TEST(GradientSamplesTest, EveryGradientIsThatOfFiniteDifferences) {
  std::size_t checked = 0;
  for (const OperatorSample& sample : operator_samples(3, 4)) {
    if (!has_differences(sample)) continue;
    SCOPED_TRACE(sample.family + ": " + sample.name);
    EXPECT_EQ(
        wrong_gradient([&](const Tensors& in) { return weighed(sample.run(in)); }, sample.inputs),
        "");
    ++checked;
  }
  EXPECT_GT(checked, 120U);
}

TEST(GradientSamplesTest, EveryGradientHasTheRightGradientItself) {
  std::size_t checked = 0;
  for (const OperatorSample& sample : operator_samples(3, 2)) {
    if (!has_differences(sample)) continue;
    SCOPED_TRACE(sample.family + ": " + sample.name);
    const Measure slope = [&](const Tensors& in) {
      const Tensor result = weighed(sample.run(in));
      Tensor sum_of_slopes = tensor(0.0, {.dtype = DType::f64});
      if (!result.requires_grad()) return sum_of_slopes;
      for (const Tensor& gradient : grad({result}, wanting(in), {}, {.create_graph = true})) {
        if (gradient.defined()) sum_of_slopes = sum_of_slopes + weighed(gradient * gradient);
      }
      return sum_of_slopes;
    };
    EXPECT_EQ(wrong_gradient(slope, sample.inputs), "");
    ++checked;
  }
  EXPECT_GT(checked, 120U);
}

}  // namespace
}  // namespace dtrun::dtensor
