// The gradient of every operator, and the gradient of that, against finite differences.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>
#include <set>

#include "dtensor/gradient_check.h"
#include "dtensor/operator_samples.h"
#include "dtrun/base/error.h"
#include "dtrun/dtensor/autograd/grad.h"

namespace dtrun::dtensor {
namespace {

/// How a sample's gradient is compared with differences.
struct Comparison {
  Tensors inputs;
  std::set<std::size_t> without = {};  ///< inputs that have no gradient
  double step = 1e-6;
};

bool is_quotient(const std::string& name) {
  const auto has = [&](const char* part) { return name.find(part) != std::string::npos; };
  return has("_divide") || has("remainder") || has("fmod") || name == "div, rounded" ||
         name == "div, truncated";
}

/// None where nothing can be compared: the result is no fraction, or has so few digits that it
/// knows no small steps. PyTorch's recorded cases have the gradients of those casts.
std::optional<Comparison> comparison_of(const OperatorSample& sample) {
  if (sample.name == "to (f16)" || sample.name == "to (bf16)") return std::nullopt;
  if (!tensors::is_floating_point(sample.run(sample.inputs).dtype())) return std::nullopt;
  Comparison comparison{.inputs = sample.inputs};
  // Whole numbers stand on the jumps.
  if (is_quotient(sample.name)) comparison.inputs[0] = comparison.inputs[0] + 0.3;
  // Linear, and of as many digits as an f32 has.
  if (sample.name == "to" || sample.name == "to (f32 and back)") comparison.step = 0.25;
  // The weights of classes.
  if (sample.name.find(", weight") != std::string::npos && sample.inputs.size() == 3)
    comparison.without = {2};
  return comparison;
}

Tensors leaves_of(const Comparison& comparison) {
  Tensors leaves;
  for (std::size_t i = 0; i < comparison.inputs.size(); ++i) {
    const Tensor& input = comparison.inputs[i];
    const bool is_leaf = input.dtype() == DType::f64 && !comparison.without.contains(i);
    leaves.push_back(is_leaf ? input.detach().clone().requires_grad_() : input);
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

std::string wrong_gradient(const Measure& measure, const Comparison& comparison) {
  const Tensors& inputs = comparison.inputs;
  const Tensors leaves = leaves_of(comparison);
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
        Tensors others = leaves_of(comparison);
        std::vector<double> values = inputs[i].to_vector();
        values[element] += by;
        others[i] = tensor_from(values, inputs[i].shape(), DType::f64).requires_grad_();
        return measure(others).item();
      };
      const double step = comparison.step;
      const double right = (moved(step) - moved(-step)) / (2 * step);
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
    const std::optional<Comparison> comparison = comparison_of(sample);
    if (!comparison) continue;
    SCOPED_TRACE(sample.family + ": " + sample.name);
    EXPECT_EQ(
        wrong_gradient([&](const Tensors& in) { return weighed(sample.run(in)); }, *comparison),
        "");
    ++checked;
  }
  std::printf("%zu samples\n", checked);
  EXPECT_GT(checked, 300U);
}

TEST(GradientSamplesTest, EveryGradientHasTheRightGradientItself) {
  std::size_t checked = 0;
  for (const OperatorSample& sample : operator_samples(3, 2)) {
    const std::optional<Comparison> comparison = comparison_of(sample);
    if (!comparison) continue;
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
    EXPECT_EQ(wrong_gradient(slope, *comparison), "");
    ++checked;
  }
  std::printf("%zu samples\n", checked);
  EXPECT_GT(checked, 300U);
}

}  // namespace
}  // namespace dtrun::dtensor
