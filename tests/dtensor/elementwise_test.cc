// Functions of each element: gradients as finite differences have them, values and gradients on
// every layout as on one rank.
#include "dtrun/dtensor/ops/elementwise.h"

#include <gtest/gtest.h>

#include <cmath>

#include "dtensor/gradient_check.h"
#include "dtensor/refusal.h"

namespace dtrun::dtensor {
namespace {

struct Named {
  const char* name;
  Function function;
  double low = -2;
  double high = 2;
};

std::vector<Named> functions() {
  const double pole = 0.1;  // away from where there is no derivative
  return {{"exp", exp},
          {"expm1", expm1},
          {"log", log, pole, 3},
          {"log2", log2, pole, 3},
          {"log10", log10, pole, 3},
          {"log1p", log1p, -0.8, 3},
          {"sqrt", sqrt, pole, 3},
          {"rsqrt", rsqrt, pole, 3},
          {"reciprocal", reciprocal, pole, 3},
          {"square", square},
          {"abs", abs},
          {"sin", sin},
          {"cos", cos},
          {"tan", tan, -1.2, 1.2},
          {"sinh", sinh},
          {"cosh", cosh},
          {"tanh", tanh},
          {"asin", asin, -0.9, 0.9},
          {"acos", acos, -0.9, 0.9},
          {"atan", atan},
          {"erf", erf},
          {"erfc", erfc},
          {"sigmoid", sigmoid},
          {"relu", relu},
          {"leaky_relu", [](const Tensor& x) { return leaky_relu(x, 0.2); }},
          {"gelu", [](const Tensor& x) { return gelu(x); }},
          {"gelu tanh", [](const Tensor& x) { return gelu(x, GeluForm::tanh); }},
          {"silu", silu},
          {"softplus", [](const Tensor& x) { return softplus(x, 2, 3); }},
          {"neg", neg},
          {"floor", floor, 0.1, 0.9},
          {"round", round, 0.6, 0.9},
          {"sign", sign, 0.1, 0.9},
          {"maximum", [](const Tensor& x) { return maximum(x, x * x); }},
          {"minimum", [](const Tensor& x) { return minimum(x, x * 0.5); }},
          {"where", [](const Tensor& x) { return where(gt(x, 0.3), x * x, x * 2); }},
          {"number minus", [](const Tensor& x) { return 2 - x; }},
          {"number over", [](const Tensor& x) { return 3 / x; }, pole, 3}};
}

/// Points between low and high, none of them at 0 or twice.
Tensor points(const Named& named) {
  std::vector<double> values;
  for (int i = 0; i < 15; ++i)
    values.push_back(named.low + (named.high - named.low) * (i + 0.37) / 15);
  return tensor_from(values, {5, 3}, DType::f64);
}

TEST(ElementwiseTest, GradientsAreThoseOfFiniteDifferences) {
  for (const Named& named : functions()) {
    SCOPED_TRACE(named.name);
    expect_gradient_right(named.function, points(named));
  }
}

TEST(ElementwiseTest, EveryLayoutGivesWhatOneRankGives) {
  for (const Named& named : functions()) {
    SCOPED_TRACE(named.name);
    expect_right_on_meshes(named.function, points(named));
  }
}

TEST(ElementwiseTest, EqualOnesShareTheGradient) {
  const Tensor a = tensor({1.0, 2.0, 3.0}).requires_grad_();
  const Tensor b = tensor({1.0, 3.0, 2.0}).requires_grad_();
  maximum(a, b).sum().backward();
  EXPECT_EQ(a.grad().to_vector(), (std::vector<double>{0.5, 0, 1}));
  EXPECT_EQ(b.grad().to_vector(), (std::vector<double>{0.5, 1, 0}));
}

TEST(ElementwiseTest, ComparisonsAreOfBoolAndHaveNoGradient) {
  const Tensor a = tensor({1.0, 2.0, 3.0}).requires_grad_(), b = tensor({2.0, 2.0, 2.0});
  EXPECT_EQ(lt(a, b).to_vector(), (std::vector<double>{1, 0, 0}));
  EXPECT_EQ(ge(a, 2).to_vector(), (std::vector<double>{0, 1, 1}));
  EXPECT_EQ(eq(a, b).dtype(), DType::boolean);
  EXPECT_FALSE(eq(a, b).requires_grad());
  EXPECT_EQ(logical_xor(lt(a, b), gt(a, b)).to_vector(), (std::vector<double>{1, 0, 1}));
  expect_refused([&] { where(a, a, b); }, "float32 condition");
}

TEST(ElementwiseTest, IntegersBecomeFloatingWhereTheFunctionIsNoIntegers) {
  EXPECT_EQ(exp(tensor({0, 1})).dtype(), DType::f32);
  EXPECT_EQ(abs(tensor({-1, 1})).dtype(), DType::i64);
  EXPECT_EQ(relu(tensor({-1, 1})).to_vector(), (std::vector<double>{0, 1}));
}

TEST(ElementwiseTest, WhatIsNoNumberPassesTheGradientOfRelu) {
  const Tensor x = tensor({std::nan(""), -1.0, 1.0}).requires_grad_();
  relu(x).sum().backward();
  EXPECT_EQ(x.grad().to_vector(), (std::vector<double>{1, 0, 1}));
}

TEST(ElementwiseTest, AMeanOfHalvesDoesNotOverflow) {
  const Tensor x = ones({70000}, {.dtype = DType::f16}).requires_grad_();
  const Tensor average = mean(x * 4.0);
  EXPECT_EQ(average.dtype(), DType::f16);
  EXPECT_EQ(average.item(), 4);
  average.backward();
  EXPECT_EQ(x.grad().dtype(), DType::f16);
}

}  // namespace
}  // namespace dtrun::dtensor
