// add, sub, mul, div and neg.
#include <cmath>

#include "autograd/named_call.h"
#include "dtrun/base/error.h"
#include "dtrun/tensor/ops.h"

#include "ops/elementwise.h"

namespace dtrun::dtensor {
namespace {

Meta divided(Metas in, const None&) {
  Meta meta = promoted(in, {});
  if (!tensors::is_floating_point(meta.dtype)) meta.dtype = DType::f32;
  return meta;
}

constexpr Op<> kAdd{
    .name = "add",
    .meta = promoted,
    .rules = [](Rules& r, Metas, const None&) { r.pointwise().cut_all().additive(); },
    .local = [](Locals in, const None&, const None&,
                const Site&) { return tensors::add(in[0], in[1]); },
    .backward = [](const Context<None, None>& c) -> Tensors {
      return {c.needs(0) ? back_to(c, 0, c.grad()) : Tensor(),
              c.needs(1) ? back_to(c, 1, c.grad()) : Tensor()};
    },
    .partial_gradient = PartialGradient::passed_on,
    .weighed = Weighed::there_and_back};

constexpr Op<> kSub{
    .name = "sub",
    .meta = promoted,
    .rules = [](Rules& r, Metas, const None&) { r.pointwise().cut_all().additive(); },
    .local = [](Locals in, const None&, const None&,
                const Site&) { return tensors::sub(in[0], in[1]); },
    .backward = [](const Context<None, None>& c) -> Tensors {
      return {c.needs(0) ? back_to(c, 0, c.grad()) : Tensor(),
              c.needs(1) ? back_to(c, 1, neg(c.grad())) : Tensor()};
    },
    .partial_gradient = PartialGradient::passed_on,
    .weighed = Weighed::there_and_back};

constexpr Op<> kMul{
    .name = "mul",
    .meta = promoted,
    .rules = [](Rules& r, Metas, const None&) { r.pointwise().cut_all().multiplicative(); },
    .local = [](Locals in, const None&, const None&,
                const Site&) { return tensors::mul(in[0], in[1]); },
    .backward = [](const Context<None, None>& c) -> Tensors {
      return {c.needs(0) ? back_to(c, 0, mul(c.grad(), c.input(1))) : Tensor(),
              c.needs(1) ? back_to(c, 1, mul(c.grad(), c.input(0))) : Tensor()};
    },
    .saves = saves_inputs(0, 1),
    .weighed = Weighed::there_and_back};

constexpr Op<> kDiv{
    .name = "div",
    .meta = divided,
    .rules = [](Rules& r, Metas, const None&) { r.pointwise().cut_all().linear(0); },
    .local = [](Locals in, const None&, const None&,
                const Site&) { return tensors::div(in[0], in[1]); },
    .backward = [](const Context<None, None>& c) -> Tensors {
      const Tensor b = c.input(1);
      const Tensor of_a = div(c.grad(), b);
      // The order of PyTorch's: -grad * ((a / b) / b).
      return {
          c.needs(0) ? back_to(c, 0, of_a) : Tensor(),
          c.needs(1) ? back_to(c, 1, mul(neg(c.grad()), div(div(c.input(0), b), b))) : Tensor()};
    },
    .saves = saves_inputs(0, 1),
    .weighed = Weighed::there_and_back};

Meta divided_by_number(Metas in, const Kind& a) {
  Meta meta = with_number(in, a);
  if (!tensors::is_floating_point(meta.dtype)) meta.dtype = DType::f32;
  return meta;
}

// Terms that are still to be summed may be scaled one by one, but not by an infinite factor: 2 - 1
// is 1, and inf - inf is nan.
void scaled(Rules& r, Metas, const Kind& a) {
  r.pointwise().cut_all();
  if (a.factor == Factor::finite) r.linear(0);
}

// Partial terms are not taken: each rank would add the number, and the sum would have it once for
// each rank. So with both forms of sub.
constexpr NumberOp kAddNumber{
    .name = "add",
    .meta = with_number,
    .rules = [](Rules& r, Metas, const Kind&) { r.pointwise().cut_all(); },
    .local = [](Locals in, const Kind&, const Number& v,
                const Site&) { return tensors::add(in[0], v.value); },
    .backward = [](const NumberContext& c) -> Tensors { return {c.grad().to(c.dtype(0))}; },
    .partial_gradient = PartialGradient::passed_on};

constexpr NumberOp kSubtractFrom{
    .name = "rsub",
    .meta = with_number,
    .rules = [](Rules& r, Metas, const Kind&) { r.pointwise().cut_all(); },
    .local = [](Locals in, const Kind&, const Number& v,
                const Site&) { return tensors::sub(v.value, in[0]); },
    .backward = [](const NumberContext& c) -> Tensors { return {neg(c.grad()).to(c.dtype(0))}; },
    .partial_gradient = PartialGradient::passed_on};

constexpr NumberOp kSubNumber{
    .name = "sub",
    .meta = with_number,
    .rules = [](Rules& r, Metas, const Kind&) { r.pointwise().cut_all(); },
    .local = [](Locals in, const Kind&, const Number& v,
                const Site&) { return tensors::sub(in[0], v.value); },
    .backward = [](const NumberContext& c) -> Tensors { return {c.grad().to(c.dtype(0))}; },
    .partial_gradient = PartialGradient::passed_on};

constexpr NumberOp kMulNumber{.name = "mul",
                              .meta = with_number,
                              .rules = scaled,
                              .local = [](Locals in, const Kind&, const Number& v,
                                          const Site&) { return tensors::mul(in[0], v.value); },
                              .backward = [](const NumberContext& c) -> Tensors {
                                return {mul(c.grad(), c.numbers().value).to(c.dtype(0))};
                              },
                              .partial_gradient = PartialGradient::passed_on};

constexpr NumberOp kDivNumber{.name = "div",
                              .meta = divided_by_number,
                              .rules = scaled,
                              .local = [](Locals in, const Kind&, const Number& v,
                                          const Site&) { return tensors::div(in[0], v.value); },
                              .backward = [](const NumberContext& c) -> Tensors {
                                return {div(c.grad(), c.numbers().value).to(c.dtype(0))};
                              },
                              .partial_gradient = PartialGradient::passed_on};

constexpr NumberOp kDivideInto{
    .name = "reciprocal",
    .meta = divided_by_number,
    .rules = [](Rules& r, Metas, const Kind&) { r.pointwise().cut_all(); },
    .local = [](Locals in, const Kind&, const Number& v,
                const Site&) { return tensors::div(v.value, in[0]); },
    .backward = [](const NumberContext& c) -> Tensors {
      const Tensor a = c.input(0);
      return {mul(neg(c.grad()), div(div(c.numbers().value, a), a)).to(c.dtype(0))};
    },
    .saves = saves_input(0)};

/// Said by meta and kernel: a local call asks no meta.
void require_signed(DType dtype) {
  if (dtype != DType::boolean) return;
  throw base::Error(base::ErrorCode::kInvalidArgument, "neg of a bool tensor",
                    "truth values have no sign", "logical_not(), or to(DType::i64) first");
}
constexpr Op<> kNeg{
    .name = "neg",
    .meta =
        [](Metas in, const None&) {
          require_signed(in[0].dtype);
          return in[0];
        },
    .rules = [](Rules& r, Metas, const None&) { r.pointwise().cut_all().linear(0); },
    .local =
        [](Locals in, const None&, const None&, const Site&) {
          require_signed(in[0].dtype());
          return tensors::mul(in[0], -1);
        },
    .backward = [](const Context<None, None>& c) -> Tensors { return {neg(c.grad())}; },
    .partial_gradient = PartialGradient::passed_on};

}  // namespace

Tensor add(const Tensor& a, const Tensor& b) {
  return call(kAdd, a, b);
}
Tensor sub(const Tensor& a, const Tensor& b) {
  return call(kSub, a, b);
}
Tensor mul(const Tensor& a, const Tensor& b) {
  return call(kMul, a, b);
}
Tensor div(const Tensor& a, const Tensor& b) {
  return call(kDiv, a, b);
}
Tensor add(const Tensor& a, Scalar b) {
  return with_number(kAddNumber, a, b);
}
Tensor sub(const Tensor& a, Scalar b) {
  return with_number(kSubNumber, a, b);
}
Tensor sub(Scalar a, const Tensor& b) {
  return named_call("sub", {{"other", b}}, [&] { return with_number(kSubtractFrom, b, a); });
}
Tensor mul(const Tensor& a, Scalar b) {
  return with_factor(kMulNumber, a, b,
                     std::isinf(b.to_double()) ? Factor::infinite : Factor::finite);
}
Tensor div(const Tensor& a, Scalar b) {
  return with_factor(kDivNumber, a, b, b.to_double() == 0 ? Factor::infinite : Factor::finite);
}
Tensor div(Scalar a, const Tensor& b) {
  return named_call("div", {{"other", b}}, [&] { return with_number(kDivideInto, b, a); });
}
Tensor neg(const Tensor& a) {
  return call(kNeg, a);
}

}  // namespace dtrun::dtensor
