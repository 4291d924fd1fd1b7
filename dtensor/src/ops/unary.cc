// Functions of one tensor, and their derivatives.
#include <cmath>
#include <numbers>

#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/tensor/ops.h"
#include "ops/elementwise.h"
#include "ops/reduced_dims.h"

namespace dtrun::dtensor {
namespace {

using C = Context<None, None>;

/// Of a function that is flat wherever it has a derivative.
Tensors flat(const C& c) {
  return {zeros_like(c.grad())};
}

constexpr Saves kInput = saves_input(0);
constexpr Saves kOutput = saves_output();

/// Of truth values, as in PyTorch, an integer.
Meta squared_dtype(Metas in, const None&) {
  return {in[0].shape, in[0].dtype == DType::boolean ? DType::i64 : in[0].dtype};
}

/// The gradient of a function in one pass, of its result's and what was saved. A gradient that is
/// to be part of a graph itself is a formula instead.
template <LocalTensor (*kKernel)(const tensors::Operand&, const tensors::Operand&)>
constexpr Op<> slope(std::string_view name) {
  return {.name = name,
          .meta = same_dtype,
          .rules = [](Rules& r, Metas, const None&) { r.pointwise().cut_all().linear(0); },
          .local = run_binary<kKernel>};
}
constexpr Op<> kSigmoidSlope = slope<tensors::sigmoid_backward>("sigmoid_backward");
constexpr Op<> kTanhSlope = slope<tensors::tanh_backward>("tanh_backward");
constexpr Op<> kSiluSlope = slope<tensors::silu_backward>("silu_backward");
constexpr Op<> kGeluSlope = slope<tensors::gelu_backward>("gelu_backward");
constexpr Op<> kGeluTanhSlope = slope<tensors::gelu_tanh_backward>("gelu_tanh_backward");

constexpr Op<> kAbs = unary<tensors::abs>(
    "abs", same_dtype, [](const C& c) -> Tensors { return {c.grad() * sign(c.input(0))}; }, kInput);
constexpr Op<> kSign = unary<tensors::sign>("sign", same_dtype, flat);
constexpr Op<> kSquare = unary<tensors::square>(
    "square", squared_dtype, [](const C& c) -> Tensors { return {c.grad() * c.input(0) * 2}; },
    kInput);
constexpr Op<> kFloor = unary<tensors::floor>("floor", same_dtype, flat);
constexpr Op<> kCeil = unary<tensors::ceil>("ceil", same_dtype, flat);
constexpr Op<> kRound = unary<tensors::round>("round", same_dtype, flat);
struct Decimals {
  int count;
};
constexpr Op<None, Decimals> kRoundTo{
    .name = "round",
    .meta =
        [](Metas in, const None&) {
          require_floating("round", in[0].dtype);
          return in[0];
        },
    .rules = elementwise_rules,
    .local = [](Locals in, const None&, const Decimals& v,
                const Site&) { return tensors::round(in[0], v.count); },
    .backward = [](const Context<None, Decimals>& c) -> Tensors { return {zeros_like(c.grad())}; }};
constexpr Op<> kTrunc = unary<tensors::trunc>("trunc", same_dtype, flat);
constexpr Op<> kReciprocal = unary<tensors::reciprocal>(
    "reciprocal", floating_dtype,
    [](const C& c) -> Tensors { return {neg(c.grad()) * square(c.output())}; }, kOutput);
constexpr Op<> kSqrt = unary<tensors::sqrt>(
    "sqrt", floating_dtype, [](const C& c) -> Tensors { return {c.grad() / (c.output() * 2)}; },
    kOutput);
constexpr Op<> kRsqrt = unary<tensors::rsqrt>(
    "rsqrt", floating_dtype,
    [](const C& c) -> Tensors {
      const Tensor y = c.output();
      return {c.grad() * -0.5 * (y * y * y)};
    },
    kOutput);
constexpr Op<> kExp = unary<tensors::exp>(
    "exp", floating_dtype, [](const C& c) -> Tensors { return {c.grad() * c.output()}; }, kOutput);
constexpr Op<> kLog = unary<tensors::log>(
    "log", floating_dtype, [](const C& c) -> Tensors { return {c.grad() / c.input(0)}; }, kInput);
constexpr Op<> kLog2 = unary<tensors::log2>(
    "log2", floating_dtype,
    [](const C& c) -> Tensors { return {c.grad() / (c.input(0) * std::numbers::ln2)}; }, kInput);
constexpr Op<> kLog10 = unary<tensors::log10>(
    "log10", floating_dtype,
    [](const C& c) -> Tensors { return {c.grad() / (c.input(0) * std::numbers::ln10)}; }, kInput);
constexpr Op<> kLog1p = unary<tensors::log1p>(
    "log1p", floating_dtype, [](const C& c) -> Tensors { return {c.grad() / (c.input(0) + 1)}; },
    kInput);
constexpr Op<> kExpm1 = unary<tensors::expm1>(
    "expm1", floating_dtype, [](const C& c) -> Tensors { return {c.grad() * (c.output() + 1)}; },
    kOutput);
constexpr Op<> kSin = unary<tensors::sin>(
    "sin", floating_dtype, [](const C& c) -> Tensors { return {c.grad() * cos(c.input(0))}; },
    kInput);
constexpr Op<> kCos = unary<tensors::cos>(
    "cos", floating_dtype, [](const C& c) -> Tensors { return {neg(c.grad()) * sin(c.input(0))}; },
    kInput);
constexpr Op<> kTan = unary<tensors::tan>(
    "tan", floating_dtype,
    [](const C& c) -> Tensors { return {c.grad() * (square(c.output()) + 1)}; }, kOutput);
constexpr Op<> kSinh = unary<tensors::sinh>(
    "sinh", floating_dtype, [](const C& c) -> Tensors { return {c.grad() * cosh(c.input(0))}; },
    kInput);
constexpr Op<> kCosh = unary<tensors::cosh>(
    "cosh", floating_dtype, [](const C& c) -> Tensors { return {c.grad() * sinh(c.input(0))}; },
    kInput);
constexpr Op<> kTanh = unary<tensors::tanh>(
    "tanh", floating_dtype,
    [](const C& c) -> Tensors {
      if (!Graph::is_on()) return {call(kTanhSlope, c.grad(), c.output())};
      return {c.grad() * (1 - square(c.output()))};
    },
    kOutput);
constexpr Op<> kAsin = unary<tensors::asin>(
    "asin", floating_dtype,
    [](const C& c) -> Tensors { return {c.grad() * rsqrt(1 - square(c.input(0)))}; }, kInput);
constexpr Op<> kAcos = unary<tensors::acos>(
    "acos", floating_dtype,
    [](const C& c) -> Tensors { return {neg(c.grad()) * rsqrt(1 - square(c.input(0)))}; }, kInput);
constexpr Op<> kAtan = unary<tensors::atan>(
    "atan", floating_dtype,
    [](const C& c) -> Tensors { return {c.grad() / (square(c.input(0)) + 1)}; }, kInput);

constexpr Op<> kAsinh = unary<tensors::asinh>(
    "asinh", floating_dtype,
    [](const C& c) -> Tensors { return {c.grad() * rsqrt(square(c.input(0)) + 1)}; }, kInput);
constexpr Op<> kAcosh = unary<tensors::acosh>(
    "acosh", floating_dtype,
    [](const C& c) -> Tensors { return {c.grad() * rsqrt(square(c.input(0)) - 1)}; }, kInput);
constexpr Op<> kAtanh = unary<tensors::atanh>(
    "atanh", floating_dtype,
    [](const C& c) -> Tensors { return {c.grad() / (1 - square(c.input(0)))}; }, kInput);

/// 2 / sqrt(pi) exp(-x^2).
Tensor erf_derivative(const Tensor& x) {
  return exp(neg(square(x))) * (2 * std::numbers::inv_sqrtpi);
}
constexpr Op<> kErf = unary<tensors::erf>(
    "erf", floating_dtype,
    [](const C& c) -> Tensors { return {c.grad() * erf_derivative(c.input(0))}; }, kInput);
constexpr Op<> kErfc = unary<tensors::erfc>(
    "erfc", floating_dtype,
    [](const C& c) -> Tensors { return {neg(c.grad()) * erf_derivative(c.input(0))}; }, kInput);
constexpr Op<> kSigmoid = unary<tensors::sigmoid>(
    "sigmoid", floating_dtype,
    [](const C& c) -> Tensors {
      const Tensor y = c.output();
      if (!Graph::is_on()) return {call(kSigmoidSlope, c.grad(), y)};
      return {c.grad() * (y * (1 - y))};
    },
    kOutput);

constexpr Op<> kRelu = unary<tensors::relu>(
    "relu", same_dtype,
    [](const C& c) -> Tensors {
      const Tensor y = c.output();
      return {depending_on(y, where(le(y, 0), zeros_like(c.grad()), c.grad()))};
    },
    kOutput);
constexpr Op<> kSilu = unary<tensors::silu>(
    "silu", floating_dtype,
    [](const C& c) -> Tensors {
      const Tensor x = c.input(0);
      if (!Graph::is_on()) return {call(kSiluSlope, c.grad(), x)};
      const Tensor s = sigmoid(x);
      return {c.grad() * (s * (x * (1 - s) + 1))};
    },
    kInput);

constexpr Op<> kIsNan = unary<tensors::isnan>("isnan", boolean_dtype, nullptr);
constexpr Op<> kIsInf = unary<tensors::isinf>("isinf", boolean_dtype, nullptr);
constexpr Op<> kIsFinite = unary<tensors::isfinite>("isfinite", boolean_dtype, nullptr);
constexpr Op<> kLogicalNot = unary<tensors::logical_not>("logical_not", boolean_dtype, nullptr);

struct Slope {
  double slope;
};
constexpr Op<None, Slope> kLeakyRelu{
    .name = "leaky_relu",
    .meta = same_dtype,
    .rules = elementwise_rules,
    .local = [](Locals in, const None&, const Slope& v,
                const Site&) { return tensors::leaky_relu(in[0], v.slope); },
    .backward = [](const Context<None, Slope>& c) -> Tensors {
      const Tensor x = c.input(0);
      return {depending_on(x, where(gt(x, 0), c.grad(), c.grad() * c.numbers().slope))};
    },
    .saves = kInput};

struct Softening {
  double beta;
  double threshold;
};
constexpr Op<None, Softening> kSoftplus{
    .name = "softplus",
    .meta = same_dtype,
    .rules = elementwise_rules,
    .local = [](Locals in, const None&, const Softening& v,
                const Site&) { return tensors::softplus(in[0], v.beta, v.threshold); },
    .backward = [](const Context<None, Softening>& c) -> Tensors {
      const Tensor scaled = c.input(0) * c.numbers().beta;
      return {where(gt(scaled, c.numbers().threshold), c.grad(), c.grad() * sigmoid(scaled))};
    },
    .saves = kInput};

struct Form {
  GeluForm form;
};
/// x Phi(x), or with tanh in place of the integral.
Tensor gelu_derivative(const Tensor& x, GeluForm form) {
  if (form == GeluForm::erf) {
    const Tensor probability = (erf(x * (1 / std::numbers::sqrt2)) + 1) * 0.5;
    const double scale = std::numbers::inv_sqrtpi / std::numbers::sqrt2;
    return probability + x * exp(square(x) * -0.5) * scale;
  }
  constexpr double kCubic = 0.044715;
  const double scale = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;
  const Tensor t = tanh((x + x * square(x) * kCubic) * scale);
  const Tensor inner = (square(x) * (3 * kCubic) + 1) * scale;
  return (t + 1) * 0.5 + x * (1 - square(t)) * inner * 0.5;
}
constexpr Op<None, Form> kGelu{.name = "gelu",
                               .meta = same_dtype,
                               .rules = elementwise_rules,
                               .local = [](Locals in, const None&, const Form& v,
                                           const Site&) { return tensors::gelu(in[0], v.form); },
                               .backward = [](const Context<None, Form>& c) -> Tensors {
                                 const GeluForm form = c.numbers().form;
                                 const Tensor x = c.input(0);
                                 if (Graph::is_on()) return {c.grad() * gelu_derivative(x, form)};
                                 const Op<>& op =
                                     form == GeluForm::erf ? kGeluSlope : kGeluTanhSlope;
                                 return {call(op, c.grad(), x)};
                               },
                               .saves = kInput};

}  // namespace

Tensor abs(const Tensor& a) {
  return call(kAbs, a);
}
Tensor sign(const Tensor& a) {
  return call(kSign, a);
}
Tensor square(const Tensor& a) {
  return call(kSquare, a);
}
Tensor floor(const Tensor& a) {
  return call(kFloor, a);
}
Tensor ceil(const Tensor& a) {
  return call(kCeil, a);
}
Tensor round(const Tensor& a) {
  return call(kRound, a);
}
Tensor round(const Tensor& a, int decimals) {
  return call(kRoundTo, a, None{}, Decimals{decimals});
}
Tensor trunc(const Tensor& a) {
  return call(kTrunc, a);
}
Tensor reciprocal(const Tensor& a) {
  return call(kReciprocal, a);
}
Tensor sqrt(const Tensor& a) {
  return call(kSqrt, a);
}
Tensor rsqrt(const Tensor& a) {
  return call(kRsqrt, a);
}
Tensor exp(const Tensor& a) {
  return call(kExp, a);
}
Tensor log(const Tensor& a) {
  return call(kLog, a);
}
Tensor log2(const Tensor& a) {
  return call(kLog2, a);
}
Tensor log10(const Tensor& a) {
  return call(kLog10, a);
}
Tensor log1p(const Tensor& a) {
  return call(kLog1p, a);
}
Tensor expm1(const Tensor& a) {
  return call(kExpm1, a);
}
Tensor sin(const Tensor& a) {
  return call(kSin, a);
}
Tensor cos(const Tensor& a) {
  return call(kCos, a);
}
Tensor tan(const Tensor& a) {
  return call(kTan, a);
}
Tensor sinh(const Tensor& a) {
  return call(kSinh, a);
}
Tensor cosh(const Tensor& a) {
  return call(kCosh, a);
}
Tensor tanh(const Tensor& a) {
  return call(kTanh, a);
}
Tensor asin(const Tensor& a) {
  return call(kAsin, a);
}
Tensor acos(const Tensor& a) {
  return call(kAcos, a);
}
Tensor atan(const Tensor& a) {
  return call(kAtan, a);
}
Tensor asinh(const Tensor& a) {
  return call(kAsinh, a);
}
Tensor acosh(const Tensor& a) {
  return call(kAcosh, a);
}
Tensor atanh(const Tensor& a) {
  return call(kAtanh, a);
}
Tensor erf(const Tensor& a) {
  return call(kErf, a);
}
Tensor erfc(const Tensor& a) {
  return call(kErfc, a);
}
Tensor sigmoid(const Tensor& a) {
  return call(kSigmoid, a);
}
Tensor relu(const Tensor& a) {
  return call(kRelu, a);
}
Tensor silu(const Tensor& a) {
  return call(kSilu, a);
}
Tensor leaky_relu(const Tensor& a, double slope) {
  return call(kLeakyRelu, a, None{}, Slope{slope});
}
Tensor gelu(const Tensor& a, GeluForm form) {
  return call(kGelu, a, None{}, Form{form});
}
Tensor softplus(const Tensor& a, double beta, double threshold) {
  return call(kSoftplus, a, None{}, Softening{beta, threshold});
}
Tensor isnan(const Tensor& a) {
  return call(kIsNan, a);
}
Tensor isinf(const Tensor& a) {
  return call(kIsInf, a);
}
Tensor isfinite(const Tensor& a) {
  return call(kIsFinite, a);
}
Tensor logical_not(const Tensor& a) {
  return call(kLogicalNot, a);
}

}  // namespace dtrun::dtensor
