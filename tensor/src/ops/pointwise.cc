// The pointwise operators: each has a loop, or is composed of others. map_call.cc runs the loops.
#include "dtrun/tensor/ops/pointwise.h"

#include <fmt/core.h>

#include <cmath>
#include <limits>

#include "dtrun/base/error.h"
#include "dtrun/tensor/ops.h"
#include "ops/map_call.h"
#include "require.h"

namespace dtrun::tensors {
namespace {

/// Rounding leaves integers unchanged.
LocalTensor rounded(const MapOperator& op, const LocalTensor& a) {
  const bool whole = !is_floating_point(a.dtype()) && a.dtype() != DType::boolean;
  return whole ? a.clone() : map(op, a);
}

void require_lerp(const LocalTensor& start, const LocalTensor& end, const Operand& weight) {
  if (!is_floating_point(start.dtype()) || start.dtype() != end.dtype()) {
    throw base::Error(
        base::ErrorCode::kInvalidArgument,
        fmt::format("lerp from {} to {}", dtype_name(start.dtype()), dtype_name(end.dtype())),
        "both ends must be of one floating-point dtype", "to() one of them");
  }
  // A 0-dim weight is a scalar, whatever its dtype.
  if (weight.is_number() || weight.dtype() == start.dtype() || weight.tensor().shape().empty())
    return;
  throw base::Error(base::ErrorCode::kInvalidArgument,
                    fmt::format("lerp of {} tensors with weights of {}", dtype_name(start.dtype()),
                                dtype_name(weight.dtype())),
                    "weights must be of the ends' dtype", "to() one of them");
}

LocalTensor with_numbers(const MapOperator& op, const Operand& a, Scalar first, Scalar second = 0) {
  return map(op, Operands(&a, 1), MapNumbers::of(first, second));
}

/// A cheaper operator with the same result as pow with this exponent; nullptr: none.
const MapOperator* operator_of_power(Scalar exponent, DType dtype) {
  const double value = exponent.to_double();
  if (value == 2) return &kSquare;
  // As PyTorch, f16 goes through pow: the root of minus infinity is infinity there.
  if (!exponent.is_floating() || dtype == DType::f16) return nullptr;
  if (value == 0.5) return &kSqrt;
  if (value == -0.5) return &kRsqrt;
  if (value == -1) return &kReciprocal;
  return nullptr;
}

bool raises_floating(const Operand& base) {
  return !base.is_number() && is_floating_point(base.dtype());
}

void require_power(const Operand& base, const Operand& exponent) {
  if (!exponent.is_number() || is_floating_point(base.dtype())) return;
  if (exponent.number().is_floating() || exponent.number().to_i64() >= 0) return;
  throw base::Error(base::ErrorCode::kInvalidArgument,
                    fmt::format("pow of integers to the power {}", exponent.number().to_i64()),
                    "negative powers of integers are no integers", "to(DType::f32) first");
}

/// Stands for a missing bound.
double bound_or(const std::optional<Operand>& bound, double otherwise) {
  return bound ? bound->number().to_double() : otherwise;
}

MapNumbers bounds_of(const std::optional<Operand>& low, const std::optional<Operand>& high,
                     DType dtype) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const auto& bound : {low, high}) {
    if (bound) require_fits("clamp", bound->number(), dtype);
  }
  MapNumbers bounds{{bound_or(low, -kInfinity), bound_or(high, kInfinity)}, {0, 0}};
  if (is_floating_point(dtype)) return bounds;
  const bool wide = dtype == DType::i64;
  bounds.integer = {
      wide ? std::numeric_limits<std::int64_t>::min() : std::numeric_limits<std::int32_t>::min(),
      wide ? std::numeric_limits<std::int64_t>::max() : std::numeric_limits<std::int32_t>::max()};
  if (low) bounds.integer[0] = low->number().to_i64();
  if (high) bounds.integer[1] = high->number().to_i64();
  return bounds;
}

/// Of products in the operands' common dtype.
MapNumbers factor_of(std::string_view operation, Operands operands, Scalar value) {
  const DType common = common_dtype(operation, operands);
  if (value.is_floating() && !is_floating_point(common)) {
    throw base::Error(
        base::ErrorCode::kInvalidArgument,
        fmt::format("{} of {} tensors times {}", operation, dtype_name(common), value.to_double()),
        "the factor of integers is an integer", "to(DType::f32) first");
  }
  return MapNumbers::of(value);
}

bool is_number_or_none(const std::optional<Operand>& bound) {
  return !bound || bound->is_number();
}

void require_bound(const std::optional<Operand>& low, const std::optional<Operand>& high) {
  if (low || high) return;
  throw base::Error(base::ErrorCode::kInvalidArgument, "clamp without a bound",
                    "one of low and high must be there", "a low or a high bound");
}

}  // namespace

LocalTensor add(const Operand& a, const Operand& b) {
  return map(kAdd, a, b);
}
LocalTensor sub(const Operand& a, const Operand& b) {
  return map(kSub, a, b);
}
LocalTensor mul(const Operand& a, const Operand& b) {
  return map(kMul, a, b);
}
LocalTensor floor_divide(const Operand& a, const Operand& b) {
  return map(kFloorDivide, a, b);
}
LocalTensor trunc_divide(const Operand& a, const Operand& b) {
  return map(kTruncDivide, a, b);
}
LocalTensor remainder(const Operand& a, const Operand& b) {
  return map(kRemainder, a, b);
}
LocalTensor fmod(const Operand& a, const Operand& b) {
  return map(kFmod, a, b);
}
LocalTensor atan2(const Operand& a, const Operand& b) {
  return map(kAtan2, a, b);
}
LocalTensor logaddexp(const Operand& a, const Operand& b) {
  return map(kLogAddExp, a, b);
}
LocalTensor maximum(const Operand& a, const Operand& b) {
  return map(kMaximum, a, b);
}
LocalTensor minimum(const Operand& a, const Operand& b) {
  return map(kMinimum, a, b);
}
LocalTensor sigmoid_backward(const Operand& gradient, const Operand& result) {
  return map(kSigmoidBackward, gradient, result);
}
LocalTensor tanh_backward(const Operand& gradient, const Operand& result) {
  return map(kTanhBackward, gradient, result);
}
LocalTensor silu_backward(const Operand& gradient, const Operand& a) {
  return map(kSiluBackward, gradient, a);
}
LocalTensor gelu_backward(const Operand& gradient, const Operand& a) {
  return map(kGeluBackward, gradient, a);
}
LocalTensor gelu_tanh_backward(const Operand& gradient, const Operand& a) {
  return map(kGeluTanhBackward, gradient, a);
}
LocalTensor eq(const Operand& a, const Operand& b) {
  return map(kEqual, a, b);
}
LocalTensor ne(const Operand& a, const Operand& b) {
  return map(kNotEqual, a, b);
}
LocalTensor lt(const Operand& a, const Operand& b) {
  return map(kLess, a, b);
}
LocalTensor le(const Operand& a, const Operand& b) {
  return map(kLessEqual, a, b);
}
LocalTensor logical_and(const Operand& a, const Operand& b) {
  return map(kLogicalAnd, a, b);
}
LocalTensor logical_or(const Operand& a, const Operand& b) {
  return map(kLogicalOr, a, b);
}
LocalTensor logical_xor(const Operand& a, const Operand& b) {
  return map(kLogicalXor, a, b);
}
LocalTensor bitwise_and(const Operand& a, const Operand& b) {
  return map(kBitAnd, a, b);
}
LocalTensor bitwise_or(const Operand& a, const Operand& b) {
  return map(kBitOr, a, b);
}
LocalTensor bitwise_xor(const Operand& a, const Operand& b) {
  return map(kBitXor, a, b);
}
LocalTensor bitwise_left_shift(const Operand& a, const Operand& b) {
  return map(kShiftLeft, a, b);
}
LocalTensor bitwise_right_shift(const Operand& a, const Operand& b) {
  return map(kShiftRight, a, b);
}
LocalTensor gt(const Operand& a, const Operand& b) {
  return map(kLess, b, a);
}
LocalTensor ge(const Operand& a, const Operand& b) {
  return map(kLessEqual, b, a);
}
LocalTensor div(const Operand& a, const Operand& b) {
  // PyTorch's result for a number on the left, rounding included, is that of the reciprocal.
  if (a.is_number() && !b.is_number()) return mul(map(kDiv, 1, b), a);
  return map(kDiv, a, b);
}
LocalTensor pow(const Operand& base, const Operand& exponent) {
  require_power(base, exponent);
  if (exponent.is_number() && raises_floating(base)) {
    if (const MapOperator* op = operator_of_power(exponent.number(), base.dtype()))
      return map(*op, base);
  }
  return map(kPow, base, exponent);
}

LocalTensor logical_not(const LocalTensor& a) {
  return map(kLogicalNot, a);
}
LocalTensor isnan(const LocalTensor& a) {
  return map(kIsNan, a);
}
LocalTensor isinf(const LocalTensor& a) {
  return map(kIsInf, a);
}
LocalTensor isfinite(const LocalTensor& a) {
  return map(kIsFinite, a);
}
LocalTensor bitwise_not(const LocalTensor& a) {
  return map(kBitNot, a);
}
LocalTensor neg(const LocalTensor& a) {
  return map(kNeg, a);
}
LocalTensor abs(const LocalTensor& a) {
  return map(kAbs, a);
}
LocalTensor sign(const LocalTensor& a) {
  return a.dtype() == DType::boolean ? a.clone() : map(kSign, a);
}
LocalTensor square(const LocalTensor& a) {
  return map(kSquare, a.dtype() == DType::boolean ? a.to(DType::i64) : a);
}
LocalTensor reciprocal(const LocalTensor& a) {
  return map(kReciprocal, a);
}
LocalTensor sqrt(const LocalTensor& a) {
  return map(kSqrt, a);
}
LocalTensor rsqrt(const LocalTensor& a) {
  return map(kRsqrt, a);
}
LocalTensor exp(const LocalTensor& a) {
  return map(kExp, a);
}
LocalTensor log(const LocalTensor& a) {
  return map(kLog, a);
}
LocalTensor log2(const LocalTensor& a) {
  return map(kLog2, a);
}
LocalTensor log10(const LocalTensor& a) {
  return map(kLog10, a);
}
LocalTensor log1p(const LocalTensor& a) {
  return map(kLog1p, a);
}
LocalTensor expm1(const LocalTensor& a) {
  return map(kExpm1, a);
}
LocalTensor sin(const LocalTensor& a) {
  return map(kSin, a);
}
LocalTensor cos(const LocalTensor& a) {
  return map(kCos, a);
}
LocalTensor tan(const LocalTensor& a) {
  return map(kTan, a);
}
LocalTensor sinh(const LocalTensor& a) {
  return map(kSinh, a);
}
LocalTensor cosh(const LocalTensor& a) {
  return map(kCosh, a);
}
LocalTensor tanh(const LocalTensor& a) {
  return map(kTanh, a);
}
LocalTensor asin(const LocalTensor& a) {
  return map(kAsin, a);
}
LocalTensor acos(const LocalTensor& a) {
  return map(kAcos, a);
}
LocalTensor atan(const LocalTensor& a) {
  return map(kAtan, a);
}
LocalTensor asinh(const LocalTensor& a) {
  return map(kAsinh, a);
}
LocalTensor acosh(const LocalTensor& a) {
  return map(kAcosh, a);
}
LocalTensor atanh(const LocalTensor& a) {
  return map(kAtanh, a);
}
LocalTensor erf(const LocalTensor& a) {
  return map(kErf, a);
}
LocalTensor erfc(const LocalTensor& a) {
  return map(kErfc, a);
}
LocalTensor sigmoid(const LocalTensor& a) {
  return map(kSigmoid, a);
}
LocalTensor relu(const LocalTensor& a) {
  return map(kRelu, a);
}
LocalTensor silu(const LocalTensor& a) {
  return map(kSilu, a);
}
LocalTensor mish(const LocalTensor& a) {
  return map(kMish, a);
}
LocalTensor hardsigmoid(const LocalTensor& a) {
  return map(kHardSigmoid, a);
}
LocalTensor floor(const LocalTensor& a) {
  return rounded(kFloor, a);
}
LocalTensor ceil(const LocalTensor& a) {
  return rounded(kCeil, a);
}
LocalTensor round(const LocalTensor& a) {
  return rounded(kRound, a);
}
LocalTensor round(const LocalTensor& a, int decimals) {
  if (!is_floating_point(a.dtype())) {
    throw base::Error(
        base::ErrorCode::kInvalidArgument,
        fmt::format("round to {} decimals of a tensor of {}", decimals, dtype_name(a.dtype())),
        "it takes floating point numbers", "to(DType::f64)");
  }
  if (decimals == 0) return round(a);
  if (is_half(a.dtype())) return round(a.to(DType::f32), decimals).to(a.dtype());
  const double power = std::pow(10.0, std::abs(static_cast<double>(decimals)));
  return decimals > 0 ? div(round(mul(a, power)), power) : mul(round(div(a, power)), power);
}
LocalTensor trunc(const LocalTensor& a) {
  return rounded(kTrunc, a);
}

LocalTensor leaky_relu(const LocalTensor& a, double slope) {
  return with_numbers(kLeakyRelu, a, slope);
}
LocalTensor elu(const LocalTensor& a, double alpha) {
  return with_numbers(kElu, a, alpha);
}
LocalTensor gelu(const LocalTensor& a, GeluForm form) {
  return map(form == GeluForm::erf ? kGelu : kGeluTanh, a);
}
LocalTensor softplus(const LocalTensor& a, double beta, double threshold) {
  return with_numbers(kSoftplus, a, beta, threshold);
}
LocalTensor hardtanh(const LocalTensor& a, Scalar low, Scalar high) {
  if (a.dtype() == DType::u8 && low.to_double() < 0) {
    throw base::Error(base::ErrorCode::kInvalidArgument,
                      fmt::format("hardtanh of a uint8 tensor from {}", low.to_double()),
                      "that dtype has no negative numbers", "to() a signed dtype, or a bound of 0");
  }
  if (low.to_double() > high.to_double()) {
    throw base::Error(base::ErrorCode::kInvalidArgument,
                      fmt::format("hardtanh from {} to {}", low.to_double(), high.to_double()),
                      "the lower bound is above the upper one", "the bounds in the other order");
  }
  // The bounds are of the tensor's dtype.
  const MapNumbers bounds{
      {low.to_double(), high.to_double()},
      {static_cast<std::int64_t>(low.to_double()), static_cast<std::int64_t>(high.to_double())}};
  const Operand operand = a;
  return map(kHardtanh, Operands(&operand, 1), bounds);
}

LocalTensor clamp(const LocalTensor& a, std::optional<Operand> low, std::optional<Operand> high) {
  require_bound(low, high);
  if (is_number_or_none(low) && is_number_or_none(high)) {
    const Operand all[] = {a, low ? *low : *high, high ? *high : *low};
    const LocalTensor input = a.to(common_dtype("clamp", all));
    const Operand operand = input;
    return map(kClampNumbers, Operands(&operand, 1), bounds_of(low, high, input.dtype()));
  }
  if (!high) return map(kMaximum, a, *low);
  if (!low) return map(kMinimum, a, *high);
  const Operand operands[] = {a, *low, *high};
  return map(kClamp, Operands(operands));
}
LocalTensor where(const LocalTensor& condition, const Operand& a, const Operand& b) {
  return map_where(condition, a, b);
}
LocalTensor lerp(const LocalTensor& start, const LocalTensor& end, const Operand& weight) {
  require_lerp(start, end, weight);
  const Operand operands[] = {start, end, weight};
  return map(kLerp, Operands(operands));
}
LocalTensor addcmul(const LocalTensor& a, const LocalTensor& b, const LocalTensor& c,
                    Scalar value) {
  const Operand operands[] = {a, b, c};
  return map(kAddcmul, Operands(operands), factor_of("addcmul", operands, value));
}
LocalTensor addcdiv(const LocalTensor& a, const LocalTensor& b, const LocalTensor& c,
                    Scalar value) {
  const Operand operands[] = {a, b, c};
  return map(kAddcdiv, Operands(operands), MapNumbers::of(value));
}

const LocalTensor& add_(const LocalTensor& a, const Operand& b) {
  return map_into(a, kAdd, b);
}
const LocalTensor& sub_(const LocalTensor& a, const Operand& b) {
  return map_into(a, kSub, b);
}
const LocalTensor& mul_(const LocalTensor& a, const Operand& b) {
  return map_into(a, kMul, b);
}
const LocalTensor& div_(const LocalTensor& a, const Operand& b) {
  return map_into(a, kDiv, b);
}
const LocalTensor& floor_divide_(const LocalTensor& a, const Operand& b) {
  return map_into(a, kFloorDivide, b);
}
const LocalTensor& remainder_(const LocalTensor& a, const Operand& b) {
  return map_into(a, kRemainder, b);
}
const LocalTensor& fmod_(const LocalTensor& a, const Operand& b) {
  return map_into(a, kFmod, b);
}
const LocalTensor& bitwise_and_(const LocalTensor& a, const Operand& b) {
  return map_into(a, kBitAnd, b);
}
const LocalTensor& bitwise_or_(const LocalTensor& a, const Operand& b) {
  return map_into(a, kBitOr, b);
}
const LocalTensor& bitwise_xor_(const LocalTensor& a, const Operand& b) {
  return map_into(a, kBitXor, b);
}
const LocalTensor& pow_(const LocalTensor& a, const Operand& exponent) {
  require_power(a, exponent);
  if (exponent.is_number() && is_floating_point(a.dtype())) {
    if (const MapOperator* op = operator_of_power(exponent.number(), a.dtype()))
      return map_into(a, *op);
  }
  return map_into(a, kPow, exponent);
}
const LocalTensor& neg_(const LocalTensor& a) {
  return map_into(a, kNeg);
}
const LocalTensor& abs_(const LocalTensor& a) {
  return map_into(a, kAbs);
}
const LocalTensor& sqrt_(const LocalTensor& a) {
  return map_into(a, kSqrt);
}
const LocalTensor& rsqrt_(const LocalTensor& a) {
  return map_into(a, kRsqrt);
}
const LocalTensor& reciprocal_(const LocalTensor& a) {
  return map_into(a, kReciprocal);
}
const LocalTensor& exp_(const LocalTensor& a) {
  return map_into(a, kExp);
}
const LocalTensor& log_(const LocalTensor& a) {
  return map_into(a, kLog);
}
const LocalTensor& tanh_(const LocalTensor& a) {
  return map_into(a, kTanh);
}
const LocalTensor& sigmoid_(const LocalTensor& a) {
  return map_into(a, kSigmoid);
}
const LocalTensor& relu_(const LocalTensor& a) {
  return map_into(a, kRelu);
}
const LocalTensor& clamp_(const LocalTensor& a, std::optional<Operand> low,
                          std::optional<Operand> high) {
  require_bound(low, high);
  if (is_number_or_none(low) && is_number_or_none(high)) {
    const Operand operand = a;
    const Operand all[] = {a, low ? *low : *high, high ? *high : *low};
    const DType common = common_dtype("clamp", all);
    if (common != a.dtype()) return a.copy_(clamp(a, low, high));
    return map_into(a, kClampNumbers, Operands(&operand, 1), bounds_of(low, high, common));
  }
  if (!high) return map_into(a, kMaximum, *low);
  if (!low) return map_into(a, kMinimum, *high);
  const Operand operands[] = {a, *low, *high};
  return map_into(a, kClamp, Operands(operands));
}
const LocalTensor& lerp_(const LocalTensor& a, const LocalTensor& end, const Operand& weight) {
  require_lerp(a, end, weight);
  const Operand operands[] = {a, end, weight};
  return map_into(a, kLerp, Operands(operands));
}
const LocalTensor& addcmul_(const LocalTensor& a, const LocalTensor& b, const LocalTensor& c,
                            Scalar value) {
  const Operand operands[] = {a, b, c};
  return map_into(a, kAddcmul, Operands(operands), factor_of("addcmul_", operands, value));
}
const LocalTensor& addcdiv_(const LocalTensor& a, const LocalTensor& b, const LocalTensor& c,
                            Scalar value) {
  const Operand operands[] = {a, b, c};
  return map_into(a, kAddcdiv, Operands(operands), MapNumbers::of(value));
}

}  // namespace dtrun::tensors
