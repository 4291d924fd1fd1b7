// Functions of each element: gradients as finite differences have them, values and gradients on
// every layout as on one rank.
#include "dtrun/dtensor/ops/elementwise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>

#include "dtensor/gradient_check.h"
#include "dtensor/refusal.h"
#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/dtensor/move/comm_counter.h"
#include "dtrun/dtensor/ops/index.h"
#include "dtrun/dtensor/ops/products.h"
#include "dtrun/dtensor/ops/rows.h"
#include "dtrun/dtensor/ops/views.h"

namespace dtrun::dtensor {
namespace {

struct Named {
  const char* name;
  Function function;
  double low = -2;
  double high = 2;
};

std::vector<Named> functions_of_one() {
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
          {"asinh", asinh},
          {"acosh", acosh, 1 + pole, 3},
          {"atanh", atanh, -0.9, 0.9},
          {"elu", [](const Tensor& x) { return elu(x, 1.5); }},
          {"mish", mish},
          {"hardsigmoid", hardsigmoid, -4, 4},
          {"hardtanh", [](const Tensor& x) { return hardtanh(x, -1.01, 0.5); }},
          {"relu6", relu6, -3, 9},
          {"neg", neg},
          {"floor", floor, 0.1, 0.9},
          {"round", [](const Tensor& x) { return round(x); }, 0.6, 0.9},
          {"round to tenths", [](const Tensor& x) { return round(x, 1); }, 0.66, 0.69},
          {"sign", sign, 0.1, 0.9}};
}

std::vector<Named> functions_of_more() {
  const double pole = 0.1;
  return {{"pow 3", [](const Tensor& x) { return pow(x, 3); }},
          {"pow -1.5", [](const Tensor& x) { return pow(x, -1.5); }, pole, 3},
          {"2 to the power", [](const Tensor& x) { return pow(2, x); }},
          {"pow of two", [](const Tensor& x) { return pow(x, x * 0.5); }, pole, 3},
          {"atan2", [](const Tensor& x) { return atan2(x, x * x - 2); }},
          {"logaddexp", [](const Tensor& x) { return logaddexp(x, x * x); }},
          {"remainder", [](const Tensor& x) { return remainder(x, 0.7); }},
          {"fmod", [](const Tensor& x) { return fmod(x, 0.7); }},
          {"remainder of two", [](const Tensor& x) { return remainder(x * 3, x * x + 1); }},
          {"fmod of two", [](const Tensor& x) { return fmod(x * 3, x * x + 1); }},
          {"clamp", [](const Tensor& x) { return clamp(x, -1.01, 0.5); }},
          {"clamp from below", [](const Tensor& x) { return clamp(x * x, 1.01); }},
          {"clamp from above", [](const Tensor& x) { return clamp(x * x, std::nullopt, 1.01); }},
          {"masked_fill", [](const Tensor& x) { return masked_fill(x * x, gt(x, 0.3), 7); }},
          {"addcmul", [](const Tensor& x) { return addcmul(x, x * x, x, -0.5); }},
          {"addcdiv", [](const Tensor& x) { return addcdiv(x, x * x, x * x + 1, -0.5); }},
          {"lerp", [](const Tensor& x) { return lerp(x, x * x, 0.3); }},
          {"lerp of three", [](const Tensor& x) { return lerp(x, x * x, x); }},
          {"maximum with", [](const Tensor& x) { return maximum(x, 0.3); }},
          {"minimum with", [](const Tensor& x) { return minimum(x * x, 0.3); }},
          {"where or", [](const Tensor& x) { return where(gt(x, 0.3), x * x, 2); }},
          {"where, either", [](const Tensor& x) { return where(gt(x, 0.3), 2, x * x); }},
          {"maximum", [](const Tensor& x) { return maximum(x, x * x); }},
          {"minimum", [](const Tensor& x) { return minimum(x, x * 0.5); }},
          {"where", [](const Tensor& x) { return where(gt(x, 0.3), x * x, x * 2); }},
          {"number minus", [](const Tensor& x) { return 2 - x; }},
          {"number over", [](const Tensor& x) { return 3 / x; }, pole, 3}};
}

std::vector<Named> functions() {
  std::vector<Named> all = functions_of_one();
  for (const Named& named : functions_of_more()) all.push_back(named);
  return all;
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

Tensor doubles(const Values& values) {
  return tensor_from(values, {static_cast<std::int64_t>(values.size())}, DType::f64);
}

/// nan is written as 99.
Values gradient_at(const Values& values, const Function& function) {
  const Tensor x = doubles(values).requires_grad_();
  sum(function(x)).backward();
  const Tensor gradient = x.grad();
  return masked_fill(gradient, isnan(gradient), 99).to_vector();
}
// What PyTorch 2.15 gives at these places.
TEST(ElementwiseTest, PowersHavePyTorchsGradientsAtTheirEdges) {
  const Tensor exponents = doubles({0., 2, 2, kNan, 0, -1, kNan});
  const Values bases = {0, 0, -1, 2, kNan, 0, 1};
  EXPECT_EQ(gradient_at(bases, [&](const Tensor& x) { return pow(x, exponents); }),
            (Values{0, 0, -2, 99, 0, -kInfinity, 99}));
  const Tensor base = doubles(bases);
  EXPECT_EQ(gradient_at(exponents.to_vector(), [&](const Tensor& x) { return pow(base, x); }),
            (Values{0, 0, 99, 99, 99, -kInfinity, 0}));
  EXPECT_EQ(gradient_at({0, kNan, 2}, [](const Tensor& x) { return pow(x, 0); }), Values(3, 0));
  EXPECT_EQ(gradient_at({0, -1}, [](const Tensor& x) { return pow(x, 0.5); }),
            (Values{kInfinity, 99}));
  EXPECT_EQ(gradient_at({0, 1, -1, kNan}, [](const Tensor& x) { return pow(0, x); }),
            (Values{0, 0, -kInfinity, 99}));
  EXPECT_EQ(gradient_at({1, 2}, [](const Tensor& x) { return pow(-2, x); }), (Values{99, 99}));
}

TEST(ElementwiseTest, BoundsHavePyTorchsGradients) {
  const Values at = {-1, 1, 0, 2, kNan, kInfinity};
  EXPECT_EQ(gradient_at(at, [](const Tensor& x) { return clamp(x, -1, 1); }),
            (Values{0, 0, 1, 0, 0, 0}));
  EXPECT_EQ(gradient_at(at, [](const Tensor& x) { return clamp(x, 1, -1); }), Values(6, 0));
  EXPECT_EQ(gradient_at(at, [](const Tensor& x) { return hardtanh(x); }),
            (Values{0, 0, 1, 0, 1, 0}));
  EXPECT_EQ(gradient_at({0, 6, 2, kNan}, relu6), (Values{0, 0, 1, 1}));
  EXPECT_TRUE(std::signbit(relu6(tensor({-0.0})).to_vector()[0]));
  const Tensor edges = tensor_from(Values{0, kNan, 200, -1}, {4}, DType::f64).requires_grad_();
  const Tensor slope = grad({elu(edges).sum()}, {edges}, {}, {.create_graph = true})[0];
  Values second = grad({slope.sum()}, {edges})[0].to_vector();
  EXPECT_NEAR(second.back(), std::exp(-1.0), 1e-15);
  second.pop_back();
  EXPECT_EQ(second, (Values{0, 0, 0}));
  EXPECT_EQ(gradient_at({-3, 3, kNan, 7}, hardsigmoid), (Values{0, 0, 0, 0}));
  EXPECT_EQ(
      gradient_at({0, kNan, kInfinity, -kInfinity, 200}, [](const Tensor& x) { return elu(x, 2); }),
      (Values{2, 1, 1, 0, 1}));
  expect_refused([] { clamp(tensor({1.0}), std::nullopt); }, "clamp without a bound");
  expect_refused([] { clamp(tensor({1.0}), Tensor(), Tensor()); }, "clamp without a bound");
}

TEST(ElementwiseTest, QuotientsAndAnglesHavePyTorchsGradientsAtTheirEdges) {
  const Tensor b = doubles({3., 3, 0, 2});
  const Tensor a = doubles({5., -5, 1, kInfinity});
  EXPECT_EQ(gradient_at(b.to_vector(), [&](const Tensor& x) { return remainder(a, x); }),
            (Values{-1, 2, -kInfinity, 99}));
  EXPECT_EQ(gradient_at(b.to_vector(), [&](const Tensor& x) { return fmod(a, x); }),
            (Values{-1, 1, -kInfinity, -kInfinity}));
  EXPECT_EQ(gradient_at({0, 1}, [](const Tensor& x) { return atan2(x, zeros({2}, kDoubles)); }),
            (Values{0, 0}));
  const Tensor big = doubles({0., kInfinity, -kInfinity, 0, 3});
  EXPECT_EQ(gradient_at({0, kInfinity, kInfinity, 1000, -kInfinity},
                        [&](const Tensor& x) { return logaddexp(x, big); }),
            (Values{0.5, 99, 1, 1, 0}));
}

TEST(ElementwiseTest, SecondDerivativesAreThoseOfFiniteDifferences) {
  const std::vector<Named> twice = {
      {"pow", [](const Tensor& x) { return pow(x, 3); }, 0.1, 3},
      {"pow of two", [](const Tensor& x) { return pow(x, x * 0.5); }, 0.1, 3},
      {"atan2", [](const Tensor& x) { return atan2(x, x * x - 2); }},
      {"logaddexp", [](const Tensor& x) { return logaddexp(x, x * x); }},
      {"asinh", asinh},
      {"elu", [](const Tensor& x) { return elu(x, 1.5); }},
      {"mish", mish},
      {"addcdiv", [](const Tensor& x) { return addcdiv(x, x * x, x * x + 1, -0.5); }},
      {"lerp of three", [](const Tensor& x) { return lerp(x, x * x, x); }}};
  for (const Named& named : twice) {
    SCOPED_TRACE(named.name);
    const auto derivative = [&](const Tensor& at) {
      const Tensor x = at.requires_grad() ? at : at.detach().requires_grad_();
      return grad({weighed(named.function(x))}, {x}, {}, {.create_graph = true})[0];
    };
    expect_gradient_right(derivative, points(named));
  }
  const Tensor far = tensor({1000.0, -1000.0}).requires_grad_();
  const Tensor slope = grad({sum(elu(far))}, {far}, {}, {.create_graph = true})[0];
  EXPECT_EQ(grad({sum(slope)}, {far})[0].to_vector(), (Values{0, 0}));
}

TEST(ElementwiseTest, NumbersGiveTheDtypeOfTheirKind) {
  const Tensor whole = tensor({1, 2, 3}), mask = tensor({true, false, true});
  EXPECT_EQ(pow(whole, 2).dtype(), DType::i64);
  EXPECT_EQ(pow(2.5, whole).dtype(), DType::f32);
  EXPECT_EQ(clamp(whole, 1.5).dtype(), DType::f32);
  EXPECT_EQ(clamp(mask, 0, 1).dtype(), DType::i64);
  EXPECT_EQ(where(mask, whole, 2.5).dtype(), DType::f32);
  EXPECT_EQ(where(mask, 1, 2).to_vector(), (Values{1, 2, 1}));
  EXPECT_EQ(where(mask, 1, 2.0).dtype(), DType::f32);
  EXPECT_EQ(maximum(whole, 2).to_vector(), (Values{2, 2, 3}));
  EXPECT_EQ(masked_fill(whole, mask, 2.5).to_vector(), (Values{2, 2, 2}));
  EXPECT_EQ(masked_fill(mask, mask, 0).dtype(), DType::boolean);
  EXPECT_EQ(floor_divide(tensor({-7, 7}), 2).to_vector(), (Values{-4, 3}));
  EXPECT_EQ(trunc_divide(tensor({-7, 7}), 2).to_vector(), (Values{-3, 3}));
  EXPECT_EQ(full_like(whole, 2.5).to_vector(), Values(3, 2));
  EXPECT_EQ(asinh(whole).dtype(), DType::f32);
}

TEST(ElementwiseTest, AWholeQuotientIsFlatToBothOperands) {
  const auto wanting = [](Tensor x) { return x.requires_grad_(); };
  for (const Rounding rounding : {Rounding::floor, Rounding::trunc}) {
    const Tensor a = wanting(doubles({-7.5, 7.5, 2})), b = wanting(doubles({2}));
    div(a, b, rounding).sum().backward();
    EXPECT_EQ(a.grad().to_vector(), (Values{0, 0, 0}));
    EXPECT_EQ(b.grad().to_vector(), (Values{0}));
    const Tensor c = wanting(doubles({-7.5, 7.5}));
    (div(c, 2, rounding) + c * c).sum().backward();
    EXPECT_EQ(c.grad().to_vector(), (Values{-15, 15}));
  }
}

TEST(ElementwiseTest, ZerosOfAFlatGradientAreNotSent) {
  test::run_ranks(2, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    const Tensor x = ones({8, 3}, mesh, {Shard(0)}).requires_grad_();
    const Tensor row = full({3}, 2, mesh, {Replicate()}).requires_grad_();
    const Tensor quotient = div(x, row, Rounding::floor);
    const Tensor slope = ones_like(quotient);
    const CommCounter counter;
    quotient.backward(slope);
    EXPECT_EQ(counter.get_total_counts(), 0);
    EXPECT_EQ(row.grad().to_vector(), (Values{0, 0, 0}));
    EXPECT_EQ(x.grad().full_tensor().to_vector(), Values(24, 0));
  });
}

TEST(ElementwiseTest, MethodsAreTheFunctions) {
  const Tensor x = tensor({-1.5, 0.5, 2.0}), b = tensor({1.0, 0.5, 3.0});
  EXPECT_EQ(x.abs().pow(2).sub(b).to_vector(), pow(abs(x), 2).sub(b).to_vector());
  EXPECT_EQ(x.clamp(-1, 1).add(b).to_vector(), (Values{0, 1, 4}));
  EXPECT_EQ(x.masked_fill(x.lt(0), 7).to_vector(), (Values{7, 0.5, 2}));
  EXPECT_EQ(x.relu().maximum(b).mul(2).div(b).to_vector(), (Values{2, 2, 2}));
  EXPECT_EQ(x.eq(b).logical_or(x.gt(1)).to_vector(), (Values{0, 1, 1}));
  EXPECT_EQ(x.matmul(b).item(), 4.75);
  EXPECT_EQ(x.exp().log().sub(x).abs().lt(1e-6).to_vector(), Values(3, 1));
}

TEST(ElementwiseTest, OperatorsAreTheFunctions) {
  const Tensor x = tensor({-1.5, 0.5, 2.0}), y = tensor({1.0, 0.5, -3.0});
  const std::vector<std::pair<Tensor, Tensor>> same_results = {
      {x == y, eq(x, y)}, {x == 0.5, eq(x, 0.5)}, {0.5 == x, eq(x, 0.5)},
      {x != y, ne(x, y)}, {x != 0.5, ne(x, 0.5)}, {0.5 != x, ne(x, 0.5)},
      {x < y, lt(x, y)},  {x < 0.5, lt(x, 0.5)},  {0.5 < x, gt(x, 0.5)},
      {x <= y, le(x, y)}, {x <= 0.5, le(x, 0.5)}, {0.5 <= x, ge(x, 0.5)},
      {x > y, gt(x, y)},  {x > 0.5, gt(x, 0.5)},  {0.5 > x, lt(x, 0.5)},
      {x >= y, ge(x, y)}, {x >= 0.5, ge(x, 0.5)}, {0.5 >= x, le(x, 0.5)}};
  for (const auto& [found, right] : same_results) {
    EXPECT_EQ(found.dtype(), DType::boolean);
    EXPECT_EQ(found.to_vector(), right.to_vector());
  }
  EXPECT_EQ(((x < 0) | (x > 1)).to_vector(), (Values{1, 0, 1}));
  EXPECT_EQ(((x == y) ^ true).to_vector(), (Values{1, 0, 1}));
  EXPECT_EQ((~(x == y)).to_vector(), (Values{1, 0, 1}));
  const Tensor bits = tensor({1, 6, 7});
  EXPECT_EQ((bits & 3).to_vector_i64(), (std::vector<std::int64_t>{1, 2, 3}));
  EXPECT_EQ((3 & bits).to_vector_i64(), (std::vector<std::int64_t>{1, 2, 3}));
  EXPECT_EQ((8 | bits | 16).to_vector_i64(), (std::vector<std::int64_t>{25, 30, 31}));
  EXPECT_EQ((2 ^ bits).to_vector_i64(), (std::vector<std::int64_t>{3, 4, 5}));
  EXPECT_EQ((~bits).to_vector_i64(), (std::vector<std::int64_t>{-2, -7, -8}));
  const Tensor changed = bits.clone();
  ((changed &= 6) |= 1) ^= bits;
  EXPECT_EQ(changed.to_vector_i64(), (std::vector<std::int64_t>{0, 1, 0}));
  ((changed |= bits) &= bits) ^= 1;
  EXPECT_EQ(changed.to_vector_i64(), (std::vector<std::int64_t>{0, 7, 6}));
}

TEST(ElementwiseTest, WhatPyTorchRefusesIsRefused) {
  const Tensor whole = tensor({1, 2, 3}), mask = tensor({true, false, true});
  expect_refused([&] { neg(mask); }, "neg of a bool tensor");
  expect_refused([&] { pow(whole, -1); }, "pow of integers");
  expect_refused([&] { masked_fill(whole, whole, 1); }, "a int64 condition");
  expect_refused([&] { masked_fill(whole, mask, kInfinity); }, "masked_fill of a int64 tensor");
  expect_refused([&] { addcdiv(whole, whole, whole); }, "addcdiv");
  expect_refused([&] { logaddexp(whole, whole); }, "logaddexp");
  expect_refused([&] { lerp(whole.to(DType::f32), whole.to(DType::f64), 0.5); }, "lerp");
  const Tensor single = whole.to(DType::f32);
  expect_refused([&] { lerp(single, single, whole.to(DType::f64)); }, "weights");
  EXPECT_EQ(lerp(single, single, doubles({0.5}).reshape({})).dtype(), DType::f32);
  expect_refused([&] { floor_divide(whole, 0); }, "division by zero");
  expect_refused([&] { where(Tensor(), 1, 2); }, "where");
}

TEST(ElementwiseTest, FillingLikeAnotherKeepsItsLayoutAndSendsNothing) {
  test::run_ranks(4, [](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2, 2});
    for (const Placement& second : {Shard(1), Replicate(), Partial()}) {
      const Tensor x = zeros({5, 3}, mesh, {Shard(0), second}, DType::f64);
      const Tensor ones = ones_like(x);
      EXPECT_EQ(ones.placements()[0], Shard(0));
      EXPECT_EQ(ones.placements()[1], second.is_partial() ? Replicate() : second);
      EXPECT_EQ(ones.full_tensor().to_vector(), Values(15, 1));
      EXPECT_EQ(full_like(x, 2.5).full_tensor().to_vector(), Values(15, 2.5));
      EXPECT_EQ(empty_like(x).shape(), x.shape());
    }
  });
}

struct InPlaceForm {
  const char* name;
  std::function<void(const Tensor& target, const Tensor& b)> change;
  std::function<Tensor(const Tensor& a, const Tensor& b)> operation;
};

#define DT_UNARY_FORM(name)                                                                        \
  {                                                                                                \
#name "_",                                                                                     \
        [](const Tensor& a, const Tensor&) { a.name##_(); }, [](const Tensor& a,                   \
                                                                const Tensor&) { return name(a); } \
  }
std::vector<InPlaceForm> forms_of_one() {
  return {DT_UNARY_FORM(neg),        DT_UNARY_FORM(abs),     DT_UNARY_FORM(exp),
          DT_UNARY_FORM(log),        DT_UNARY_FORM(sqrt),    DT_UNARY_FORM(rsqrt),
          DT_UNARY_FORM(reciprocal), DT_UNARY_FORM(sigmoid), DT_UNARY_FORM(tanh),
          DT_UNARY_FORM(relu),       DT_UNARY_FORM(floor),   DT_UNARY_FORM(ceil),
          DT_UNARY_FORM(round),      DT_UNARY_FORM(trunc)};
}
#undef DT_UNARY_FORM

std::vector<InPlaceForm> forms_of_more() {
  using T = const Tensor&;
  return {
      {"add_", [](T a, T b) { a += b; }, [](T a, T b) { return a + b; }},
      {"add_ alpha", [](T a, T b) { a.add_(b, 0.5); }, [](T a, T b) { return a + b * 0.5; }},
      {"sub_ alpha", [](T a, T b) { a.sub_(b, 0.5); }, [](T a, T b) { return a - b * 0.5; }},
      {"mul_", [](T a, T b) { a *= b; }, [](T a, T b) { return a * b; }},
      {"div_ by itself", [](T a, T) { a /= a; }, [](T a, T) { return a / a; }},
      {"add_ 2", [](T a, T) { a += 2; }, [](T a, T) { return a + 2; }},
      {"sub_ 2", [](T a, T) { a -= 2; }, [](T a, T) { return a - 2; }},
      {"mul_ 2", [](T a, T) { a *= 2.5; }, [](T a, T) { return a * 2.5; }},
      {"div_ 2", [](T a, T) { a /= 2; }, [](T a, T) { return a / 2; }},
      {"pow_", [](T a, T b) { a.pow_(b); }, [](T a, T b) { return pow(a, b); }},
      {"pow_ 3", [](T a, T) { a.pow_(3); }, [](T a, T) { return pow(a, 3); }},
      {"clamp_", [](T a, T) { a.clamp_(0.7, 1.5); }, [](T a, T) { return clamp(a, 0.7, 1.5); }},
      {"masked_fill_", [](T a, T b) { a.masked_fill_(gt(b, 1), 7); },
       [](T a, T b) { return masked_fill(a, gt(b, 1), 7); }},
      {"addcmul_", [](T a, T b) { a.addcmul_(b, b, 0.1); },
       [](T a, T b) { return addcmul(a, b, b, 0.1); }},
      {"addcdiv_", [](T a, T b) { a.addcdiv_(a, b, 0.1); },
       [](T a, T b) { return addcdiv(a, a, b, 0.1); }},
      {"lerp_", [](T a, T b) { a.lerp_(b, 0.1); }, [](T a, T b) { return lerp(a, b, 0.1); }},
      {"lerp_ of three", [](T a, T b) { a.lerp_(b, b); }, [](T a, T b) { return lerp(a, b, b); }}};
}

/// In the graph, and outside, where kernels write the elements themselves.
void expect_same(const InPlaceForm& form, const Tensor& a, const Tensor& b) {
  const auto whole = [](const Tensor& x) { return x.is_distributed() ? x.full_tensor() : x; };
  const Tensor plain = a.clone();
  form.change(plain, b);
  EXPECT_EQ(difference(whole(plain), whole(form.operation(a, b)), {1e-15, 1e-15}), "");
  const Tensor x = a.detach().requires_grad_(), y = a.detach().clone().requires_grad_();
  const Tensor changed = x * 1.0;
  form.change(changed, b);
  sum(changed * changed).backward();
  const Tensor result = form.operation(y * 1.0, b);
  sum(result * result).backward();
  EXPECT_EQ(difference(whole(changed), whole(result), {1e-15, 1e-15}), "");
  EXPECT_EQ(difference(whole(x.grad()), whole(y.grad()), {1e-14, 1e-14}), "");
}

TEST(ElementwiseTest, FormsInPlaceAreTheOperatorsWithTheirGradients) {
  std::vector<InPlaceForm> forms = forms_of_one();
  for (const InPlaceForm& form : forms_of_more()) forms.push_back(form);
  const Tensor a = exp(randn({5, 3}, {1}, kDoubles)), b = exp(randn({5, 3}, {2}, kDoubles));
  for (const InPlaceForm& form : forms) {
    SCOPED_TRACE(form.name);
    expect_same(form, a, b);
  }
  test::run_ranks(2, [&](const ProcessGroup& group) {
    const DeviceMesh mesh(group, {2});
    for (const Placement& of_a : {Shard(0), Shard(1), Replicate(), Partial()}) {
      for (const Placement& of_b : {Shard(0), Partial()}) {
        const Tensor x = distribute_tensor(a, mesh, {of_a}, {.source_rank = -1});
        const Tensor y = distribute_tensor(b, mesh, {of_b}, {.source_rank = -1});
        for (const InPlaceForm& form : forms) {
          SCOPED_TRACE(form.name + placements_to_string({of_a, of_b}));
          expect_same(form, x, y);
        }
      }
    }
  });
}

TEST(ElementwiseTest, TruthsInPlaceHaveNoGradientOfTheOperand) {
  using Form = const Tensor& (InPlaceMethods::*)(const Tensor&) const;
  const Tensor other = tensor({0., 1.}).requires_grad_();
  const std::vector<std::pair<Form, Values>> forms = {
      {&Tensor::eq_, {0, 1}},          {&Tensor::ne_, {1, 0}},
      {&Tensor::lt_, {0, 0}},          {&Tensor::le_, {0, 1}},
      {&Tensor::gt_, {1, 0}},          {&Tensor::ge_, {1, 1}},
      {&Tensor::logical_and_, {0, 1}}, {&Tensor::logical_or_, {1, 1}},
      {&Tensor::logical_xor_, {1, 0}}};
  for (const auto& [form, truths] : forms) {
    const Tensor rows = ones({2, 2});
    (rows.select(0, 0).*form)(other);  // whose elements `rows` has, too
    EXPECT_EQ(rows.select(0, 0).to_vector(), truths);
    EXPECT_FALSE(rows.requires_grad());
    const Tensor alone = ones({2});
    (alone.*form)(other);
    EXPECT_EQ(alone.to_vector(), truths);
    EXPECT_FALSE(alone.requires_grad());
  }
  const Tensor rows = ones({2, 2});
  expect_refused([&] { rows.select(0, 0).add_(other); }, "that shares its elements");
}

TEST(ElementwiseTest, WhatDoesNotFitInPlaceIsRefused) {
  const Tensor whole = tensor({1, 2, 3}), mask = tensor({true, false, true});
  const auto tries =
      std::vector<std::function<void()>>{[&] { whole.add_(1.5); },
                                         [&] { mask.add_(1); },
                                         [&] { whole.div_(2); },
                                         [&] { whole.exp_(); },
                                         [&] { whole.clamp_(0.5); },
                                         [&] { whole.pow_(2.0); },
                                         [&] { whole.clone().select(0, 0).masked_fill_(mask, 0); }};
  for (const auto& refused : tries) expect_refused(refused, "does not fit into it");
  expect_refused([&] { mask.neg_(); }, "neg of a bool tensor");
  expect_refused([&] { whole.add_(Tensor()); }, "add_");
  expect_refused([&] { whole.clamp_(Tensor(), Tensor()); }, "clamp without a bound");
  expect_refused([&] { whole.clamp_(tensor(0.5), Tensor()); }, "does not fit into it");
  EXPECT_EQ(whole.to_vector(), (Values{1, 2, 3}));
  whole.floor_().neg_() += 1;
  EXPECT_EQ(whole.to_vector(), (Values{0, -1, -2}));
}

TEST(ElementwiseTest, AMeanOfHalvesDoesNotOverflow) {
  const Tensor x = ones({70000}, {.dtype = DType::f16}).requires_grad_();
  const Tensor average = mean(x * 4.0);
  EXPECT_EQ(average.dtype(), DType::f16);
  EXPECT_EQ(average.item(), 4);
  average.backward();
  EXPECT_EQ(x.grad().dtype(), DType::f16);
}

TEST(ElementwiseTest, AClampSharesItsGradientAsPyTorchDoesWhereBoundsMeet) {
  // PyTorch 2.15.0's, of all triples of 0, 1, 2 and nan; 5 is a half.
  const std::string of_x = "1551000000001111051101510000011100510051001100111111111111111111";
  const std::string of_low = "0550011000100000000000500010000000000000000000000000000000000000";
  const std::string of_high = "0000100011000000150010001100000011501150110000000000100011000000";
  Values x, low, high;
  const Values four = {0, 1, 2, std::nan("")};
  for (const double a : four) {
    for (const double b : four) {
      for (const double c : four) {
        x.push_back(a);
        low.push_back(b);
        high.push_back(c);
      }
    }
  }
  const auto leaf = [](const Values& values) {
    return tensor_from(values, {64}, DType::f64).requires_grad_();
  };
  const auto digits = [](const Tensor& gradient) {
    std::string text;
    for (const double part : gradient.to_vector())
      text += part == 0.5 ? '5' : part == 1 ? '1' : '0';
    return text;
  };
  const Tensor element = leaf(x), least = leaf(low), most = leaf(high);
  clamp(element, least, most).backward(ones({64}, {.dtype = DType::f64}));
  EXPECT_EQ(digits(element.grad()), of_x);
  EXPECT_EQ(digits(least.grad()), of_low);
  EXPECT_EQ(digits(most.grad()), of_high);
}

TEST(ElementwiseTest, BoundsMayBeTensorsAndANumberMayBeDivided) {
  const double nan = std::nan("");
  const auto leaf = [](const Values& values) {
    return tensor_from(values, {static_cast<std::int64_t>(values.size())}, DType::f64)
        .requires_grad_();
  };
  // PyTorch 2.15's values and gradients: where a bound is met, each has half.
  const Tensor x = leaf({1, 2, 3, nan, 5}), low = leaf({1, 2.5, 0, 0, 6}),
               high = leaf({2, 3, 3, 1, 4});
  const Tensor y = clamp(x, low, high);
  EXPECT_EQ(y.slice(0, 0, 3).to_vector(), (Values{1, 2.5, 3}));
  EXPECT_TRUE(std::isnan(y.to_vector()[3]));
  EXPECT_EQ(y.to_vector()[4], 4);
  y.slice(0, 0, 3).sum().backward();
  EXPECT_EQ(x.grad().to_vector(), (Values{0.5, 0, 0.5, 0, 0}));
  EXPECT_EQ(low.grad().to_vector(), (Values{0.5, 1, 0, 0, 0}));
  EXPECT_EQ(high.grad().to_vector(), (Values{0, 0, 0.5, 0, 0}));

  const Tensor b = leaf({3, -3, 4});
  const Tensor r = remainder(7, b);
  EXPECT_EQ(r.to_vector(), (Values{1, -2, 3}));
  r.sum().backward();
  EXPECT_EQ(b.grad().to_vector(), (Values{-2, 3, -1}));
  EXPECT_EQ(remainder(7, tensor({3, -3})).to_vector_i64(), (std::vector<std::int64_t>{1, -2}));
  EXPECT_EQ(remainder(7.5, tensor({3, -3})).dtype(), DType::f32);
  const Tensor n = tensor({-7, 7});
  EXPECT_EQ(div(n, 2, Rounding::floor).to_vector(), (Values{-4, 3}));
  EXPECT_EQ(div(n, tensor({2, 2}), Rounding::trunc).to_vector(), (Values{-3, 3}));
}

TEST(ElementwiseTest, TermsAreAddedUpBeforeAnInfiniteFactorComes) {
  const double infinity = std::numeric_limits<double>::infinity();
  test::run_ranks(2, [&](const ProcessGroup& group) {
    const double own = group.rank() == 0 ? 3 : -1;
    const Tensor terms = Tensor::from_local(tensor_from(Values{own}, {1}, DType::f64),
                                            DeviceMesh(group, {2}), {Partial()});
    EXPECT_EQ((terms * infinity).to_vector(), (Values{infinity}));
    EXPECT_EQ((terms / 0.0).to_vector(), (Values{infinity}));
    EXPECT_TRUE((terms * 0.0).placements()[0].is_partial());
  });
}

}  // namespace
}  // namespace dtrun::dtensor
