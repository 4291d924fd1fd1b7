// Functions of several tensors that one pass computes: what optimizers and clipping are made of.
#include <optional>

#include "autograd/named_call.h"
#include "dtrun/base/error.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/tensor/ops.h"
#include "dtrun/tensor/ops/pointwise.h"
#include "ops/elementwise.h"

namespace dtrun::dtensor {
namespace {

Meta promoted_of_three(Metas in, const None&) {
  const Meta two = promoted(in, {});
  return {tensors::broadcast_shapes(two.shape, in[2].shape),
          tensors::result_type(typed(two), typed(in[2]))};
}

using Factored = Context<None, Number>;

constexpr Op<None, Number> kAddcmul{
    .name = "addcmul",
    .meta = promoted_of_three,
    .rules = elementwise_rules,
    .local = [](Locals in, const None&, const Number& v,
                const Site&) { return tensors::addcmul(in[0], in[1], in[2], v.value); },
    .backward = [](const Factored& c) -> Tensors {
      const Tensor g = c.grad() * c.numbers().value;
      return {c.needs(0) ? back_to(c, 0, c.grad()) : Tensor(),
              c.needs(1) ? back_to(c, 1, g * c.input(2)) : Tensor(),
              c.needs(2) ? back_to(c, 2, g * c.input(1)) : Tensor()};
    },
    .saves = {0b110, false}};

constexpr Op<None, Number> kAddcdiv{
    .name = "addcdiv",
    .meta = promoted_of_three,
    .rules = elementwise_rules,
    .local = [](Locals in, const None&, const Number& v,
                const Site&) { return tensors::addcdiv(in[0], in[1], in[2], v.value); },
    .backward = [](const Factored& c) -> Tensors {
      const Tensor divisor = c.input(2), g = c.grad() * c.numbers().value / divisor;
      return {c.needs(0) ? back_to(c, 0, c.grad()) : Tensor(),
              c.needs(1) ? back_to(c, 1, g) : Tensor(),
              c.needs(2) ? back_to(c, 2, neg(g) * c.input(1) / divisor) : Tensor()};
    },
    .saves = {0b110, false}};

constexpr Op<> kLerp{
    .name = "lerp",
    .meta =
        [](Metas in, const None&) {
          return Meta{promoted_of_three(in, {}).shape, in[0].dtype};
        },
    .rules = elementwise_rules,
    .local = [](Locals in, const None&, const None&,
                const Site&) { return tensors::lerp(in[0], in[1], in[2]); },
    .backward = [](const Context<None, None>& c) -> Tensors {
      const Tensor weight = c.input(2);
      return {c.needs(0) ? back_to(c, 0, c.grad() * (1 - weight)) : Tensor(),
              c.needs(1) ? back_to(c, 1, c.grad() * weight) : Tensor(),
              c.needs(2) ? back_to(c, 2, c.grad() * (c.input(1) - c.input(0))) : Tensor()};
    },
    .saves = {0b111, false}};

constexpr Op<None, Number> kLerpNumber{
    .name = "lerp",
    .meta = promoted,
    .rules = [](Rules& r, Metas, const None&) { r.pointwise().cut_all().additive(); },
    .local = [](Locals in, const None&, const Number& v,
                const Site&) { return tensors::lerp(in[0], in[1], v.value); },
    .backward = [](const Factored& c) -> Tensors {
      const double weight = c.numbers().value.to_double();
      return {c.needs(0) ? back_to(c, 0, c.grad() * (1 - weight)) : Tensor(),
              c.needs(1) ? back_to(c, 1, c.grad() * weight) : Tensor()};
    }};

constexpr Op<> kAtan2{.name = "atan2",
                      .meta = [](Metas in, const None&) -> Meta {
                        Meta meta = promoted(in, {});
                        if (!tensors::is_floating_point(meta.dtype)) meta.dtype = DType::f32;
                        return meta;
                      },
                      .rules = elementwise_rules,
                      .local = run_binary<tensors::atan2>,
                      .backward = [](const Context<None, None>& c) -> Tensors {
                        const Tensor y = c.input(0), x = c.input(1);
                        const Tensor radius = square(x) + square(y);
                        const Tensor g = masked_fill(c.grad() / radius, eq(radius, 0), 0);
                        return {c.needs(0) ? back_to(c, 0, g * x) : Tensor(),
                                c.needs(1) ? back_to(c, 1, neg(g) * y) : Tensor()};
                      },
                      .saves = saves_inputs(0, 1)};

constexpr Op<> kLogAddExp{.name = "logaddexp",
                          .meta = promoted,
                          .rules = elementwise_rules,
                          .local = run_binary<tensors::logaddexp>,
                          .backward = [](const Context<None, None>& c) -> Tensors {
                            const Tensor a = c.input(0), b = c.input(1);
                            return {
                                c.needs(0) ? back_to(c, 0, c.grad() * sigmoid(a - b)) : Tensor(),
                                c.needs(1) ? back_to(c, 1, c.grad() * sigmoid(b - a)) : Tensor()};
                          },
                          .saves = saves_inputs(0, 1)};

/// The kinds of the bounds decide the dtype.
struct BoundKinds {
  std::optional<Scalar::Kind> low;
  std::optional<Scalar::Kind> high;
};
void append_key(CallKey& key, const BoundKinds& a) {
  for (const auto& kind : {a.low, a.high}) {
    key.push_back(kind ? static_cast<std::int64_t>(*kind) : -1);
  }
}
struct Bounds {
  std::optional<Scalar> low;
  std::optional<Scalar> high;
};

std::optional<tensors::Operand> bound(const std::optional<Scalar>& number) {
  return number ? std::optional<tensors::Operand>(*number) : std::nullopt;
}

constexpr Op<BoundKinds, Bounds> kClamp{
    .name = "clamp",
    .meta = [](Metas in, const BoundKinds& a) -> Meta {
      Meta meta = in[0];
      for (const auto& kind : {a.low, a.high}) {
        if (kind) meta.dtype = tensors::result_type(typed(meta), of_kind(*kind));
      }
      return meta;
    },
    .rules = [](Rules& r, Metas, const BoundKinds&) { r.pointwise().cut_all(); },
    .local = [](Locals in, const BoundKinds&, const Bounds& v,
                const Site&) { return tensors::clamp(in[0], bound(v.low), bound(v.high)); },
    .backward = [](const Context<BoundKinds, Bounds>& c) -> Tensors {
      const Tensor x = c.input(0);
      Tensor inside;
      if (c.numbers().low) inside = gt(x, *c.numbers().low);
      if (c.numbers().high) {
        const Tensor below = lt(x, *c.numbers().high);
        inside = inside.defined() ? logical_and(inside, below) : below;
      }
      return {where(inside, c.grad(), zeros_like(c.grad())).to(c.dtype(0))};
    },
    .saves = saves_input(0)};

/// Half of an element's gradient where it is equal to one bound, all where the bounds are equal;
/// none to it where it is outside. What compares with nan is neither.
struct ClampShares {
  Tensor to_element, to_low, to_high;
};
ClampShares clamp_shares(const Tensor& x, const Tensor& low, const Tensor& high) {
  const Tensor below = lt(x, low), above = gt(x, high);
  const Tensor apart = lt(low, high), crossed = gt(low, high), ordered = le(low, high);
  const Tensor at_low = logical_and(eq(x, low), apart), at_high = logical_and(eq(x, high), apart);
  const auto share = [&](const Tensor& whole, const Tensor& half) {
    return whole.to(x.dtype()) + half.to(x.dtype()) * 0.5;
  };
  const Tensor outside = logical_or(below, above), tied = logical_or(at_low, at_high);
  return {share(logical_not(logical_or(outside, tied)), logical_and(tied, logical_not(outside))),
          share(logical_and(below, ordered), at_low),
          share(logical_or(crossed, logical_and(above, ordered)), at_high)};
}

/// Between two tensors. One bound is maximum or minimum.
constexpr Op<> kClampBetween{
    .name = "clamp",
    .meta = promoted_of_three,
    .rules = elementwise_rules,
    .local = [](Locals in, const None&, const None&,
                const Site&) { return tensors::clamp(in[0], in[1], in[2]); },
    .backward = [](const Context<None, None>& c) -> Tensors {
      const ClampShares shares = clamp_shares(c.input(0), c.input(1), c.input(2));
      const auto back = [&](std::size_t i, const Tensor& share) {
        return c.needs(i) ? back_to(c, i, where(ne(share, 0), c.grad() * share, 0)) : Tensor();
      };
      return {back(0, shares.to_element), back(1, shares.to_low), back(2, shares.to_high)};
    },
    .saves = {0b111, false}};

constexpr Op<None, Bounds> kHardtanh{
    .name = "hardtanh",
    .meta = same_dtype,
    .rules = elementwise_rules,
    .local = [](Locals in, const None&, const Bounds& v,
                const Site&) { return tensors::hardtanh(in[0], *v.low, *v.high); },
    .backward = [](const Context<None, Bounds>& c) -> Tensors {
      const Tensor x = c.input(0);
      // Of the outside, for nan is none: its gradient passes.
      const Tensor outside = logical_or(le(x, *c.numbers().low), ge(x, *c.numbers().high));
      return {depending_on(x, masked_fill(c.grad(), outside, 0))};
    },
    .saves = saves_input(0)};

struct Steepness {
  double alpha;
};
constexpr Op<None, Steepness> kElu{
    .name = "elu",
    .meta = same_dtype,
    .rules = elementwise_rules,
    .local = [](Locals in, const None&, const Steepness& v,
                const Site&) { return tensors::elu(in[0], v.alpha); },
    .backward = [](const Context<None, Steepness>& c) -> Tensors {
      const Tensor x = c.input(0);
      // exp only where it is wanted: what overflows would spoil the second derivative, which is 0
      // at 0 and of nan.
      const Tensor below = exp(masked_fill(x, logical_not(lt(x, 0)), 0));
      return {where(le(x, 0), c.grad() * c.numbers().alpha * below, c.grad())};
    },
    .saves = saves_input(0)};

constexpr Op<> kMish = unary<tensors::mish>(
    "mish", same_dtype,
    [](const Context<None, None>& c) -> Tensors {
      const Tensor x = c.input(0), t = tanh(softplus(x));
      return {c.grad() * (t + x * sigmoid(x) * (1 - square(t)))};
    },
    saves_input(0));
constexpr Op<> kHardSigmoid = unary<tensors::hardsigmoid>(
    "hardsigmoid", same_dtype,
    [](const Context<None, None>& c) -> Tensors {
      const Tensor x = c.input(0);
      return {where(logical_and(gt(x, -3), lt(x, 3)), c.grad() / 6, zeros_like(c.grad()))};
    },
    saves_input(0));

[[noreturn]] void refuse_no_bound() {
  throw base::Error(base::ErrorCode::kInvalidArgument, "clamp without a bound",
                    "it would change nothing", "a lower bound, an upper one, or both");
}

/// A number beside a tensor, of the dtype that both have in common.
Tensor beside(const Tensor& a, Scalar number) {
  const DType dtype = tensors::result_type({a.dtype(), a.shape()}, number);
  return Tensor(tensors::full({}, number, {dtype, a.device()}));
}

/// What the number is in a tensor of that dtype: integers lose its fraction, as in PyTorch.
Scalar element_of(DType dtype, Scalar number) {
  const double value = number.to_double();
  if (tensors::is_floating_point(dtype) || !number.is_floating()) return number;
  if (dtype == DType::boolean) return value != 0;
  if (value >= -0x1p63 && value < 0x1p63) return static_cast<std::int64_t>(value);
  throw base::Error(base::ErrorCode::kInvalidArgument,
                    "masked_fill of a " + std::string(tensors::dtype_name(dtype)) +
                        " tensor with " + std::to_string(value),
                    "no element of that dtype is that number", "to(DType::f32) first");
}

}  // namespace

Tensor addcmul(const Tensor& a, const Tensor& b, const Tensor& c, Scalar value) {
  const Tensor* const inputs[] = {&a, &b, &c};
  return call(kAddcmul, std::span<const Tensor* const>(inputs), None{}, Number{value});
}
Tensor addcdiv(const Tensor& a, const Tensor& b, const Tensor& c, Scalar value) {
  const Tensor* const inputs[] = {&a, &b, &c};
  return call(kAddcdiv, std::span<const Tensor* const>(inputs), None{}, Number{value});
}
Tensor lerp(const Tensor& start, const Tensor& end, const Tensor& weight) {
  const Tensor* const inputs[] = {&start, &end, &weight};
  return call(kLerp, std::span<const Tensor* const>(inputs));
}
Tensor lerp(const Tensor& start, const Tensor& end, Scalar weight) {
  return call(kLerpNumber, start, end, None{}, Number{weight});
}
Tensor atan2(const Tensor& y, const Tensor& x) {
  return call(kAtan2, y, x);
}
Tensor logaddexp(const Tensor& a, const Tensor& b) {
  return call(kLogAddExp, a, b);
}
Tensor clamp(const Tensor& a, const Tensor& low, const Tensor& high) {
  return named_call(
      "clamp",
      {{"input", a}, CallArgument::if_given("low", low), CallArgument::if_given("high", high)},
      [&] {
        if (!low.defined() && !high.defined()) refuse_no_bound();
        if (!high.defined()) return maximum(a, low);
        if (!low.defined()) return minimum(a, high);
        const Tensor* const inputs[] = {&a, &low, &high};
        return call(kClampBetween, std::span<const Tensor* const>(inputs));
      });
}

Tensor clamp(const Tensor& a, std::optional<Scalar> low, std::optional<Scalar> high) {
  if (!low && !high) refuse_no_bound();
  const auto kind_of = [](const std::optional<Scalar>& number) {
    return number ? std::optional(number->kind()) : std::nullopt;
  };
  return call(kClamp, a, BoundKinds{kind_of(low), kind_of(high)}, Bounds{low, high});
}
Tensor hardtanh(const Tensor& a, Scalar low, Scalar high) {
  return call(kHardtanh, a, None{}, Bounds{low, high});
}
Tensor elu(const Tensor& a, double alpha) {
  return call(kElu, a, None{}, Steepness{alpha});
}
Tensor mish(const Tensor& a) {
  return call(kMish, a);
}
Tensor hardsigmoid(const Tensor& a) {
  return call(kHardSigmoid, a);
}
Tensor relu6(const Tensor& a) {
  return named_call("relu6", {{"input", a}}, [&] { return hardtanh(a, 0, 6); });
}
Tensor where(const Tensor& condition, const Tensor& a, Scalar b) {
  return named_call("where", {{"condition", condition}, {"input", a}},
                    [&] { return where(condition, a, beside(a, b)); });
}
Tensor where(const Tensor& condition, Scalar a, const Tensor& b) {
  return named_call("where", {{"condition", condition}, {"other", b}},
                    [&] { return where(condition, beside(b, a), b); });
}
Tensor where(const Tensor& condition, Scalar a, Scalar b) {
  return named_call("where", {{"condition", condition}}, [&] {
    return where(condition, Tensor(tensors::full({}, a, {a.dtype(), condition.device()})),
                 Tensor(tensors::full({}, b, {b.dtype(), condition.device()})));
  });
}
Tensor maximum(const Tensor& a, Scalar b) {
  return named_call("maximum", {{"input", a}}, [&] { return maximum(a, beside(a, b)); });
}
Tensor minimum(const Tensor& a, Scalar b) {
  return named_call("minimum", {{"input", a}}, [&] { return minimum(a, beside(a, b)); });
}
Tensor logical_and(const Tensor& a, Scalar b) {
  return named_call("logical_and", {{"input", a}}, [&] { return logical_and(a, beside(a, b)); });
}
Tensor logical_or(const Tensor& a, Scalar b) {
  return named_call("logical_or", {{"input", a}}, [&] { return logical_or(a, beside(a, b)); });
}
Tensor logical_xor(const Tensor& a, Scalar b) {
  return named_call("logical_xor", {{"input", a}}, [&] { return logical_xor(a, beside(a, b)); });
}
Tensor masked_fill(const Tensor& a, const Tensor& mask, Scalar value) {
  return named_call("masked_fill", {{"input", a}, {"mask", mask}}, [&] {
    const Scalar element = element_of(a.dtype(), value);
    return where(mask, Tensor(tensors::full({}, element, {a.dtype(), a.device()})), a);
  });
}

}  // namespace dtrun::dtensor
