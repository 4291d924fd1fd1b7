// Division that gives whole numbers, and what it leaves; bits and shifts.
#include "autograd/named_call.h"
#include "dtrun/base/error.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/tensor/ops/pointwise.h"
#include "ops/elementwise.h"

namespace dtrun::dtensor {
namespace {

using Kernel = LocalTensor (*)(const tensors::Operand&, const tensors::Operand&);

template <Kernel kKernel>
constexpr Op<> of_two(std::string_view name, Gradient gradient = nullptr, Saves saves = {}) {
  return {.name = name,
          .meta = promoted,
          .rules = elementwise_rules,
          .local = run_binary<kKernel>,
          .backward = gradient,
          .saves = saves};
}
template <Kernel kKernel>
constexpr NumberOp with_a_number(std::string_view name,
                                 Tensors (*gradient)(const NumberContext&) = nullptr) {
  return {.name = name,
          .meta = with_number,
          .rules = elementwise_number_rules,
          .local = run_with_number<kKernel>,
          .backward = gradient};
}

/// Of a whole quotient, which is flat wherever it has a derivative. PyTorch's div with a rounding
/// mode gives zeros, too; its floor_divide refuses a backward.
Tensors flat_quotient(const Context<None, None>& c) {
  return {c.needs(0) ? c.zeros(0) : Tensor(), c.needs(1) ? c.zeros(1) : Tensor()};
}
Tensors flat_quotient(const NumberContext& c) {
  return {c.zeros(0)};
}
/// a - b * the whole quotient: 1 to a, and the quotient, negated, to b.
template <Tensor (*kQuotient)(const Tensor&, const Tensor&)>
Tensors remainder_gradient(const Context<None, None>& c) {
  return {c.needs(0) ? back_to(c, 0, c.grad()) : Tensor(),
          c.needs(1) ? back_to(c, 1, neg(c.grad()) * kQuotient(c.input(0), c.input(1))) : Tensor()};
}
Tensors same_gradient(const NumberContext& c) {
  return {c.grad().to(c.dtype(0))};
}
constexpr Saves kBoth = saves_inputs(0, 1);

constexpr Op<> kFloorDivide = of_two<tensors::floor_divide>("floor_divide", flat_quotient);
constexpr Op<> kTruncDivide = of_two<tensors::trunc_divide>("trunc_divide", flat_quotient);
constexpr Op<> kRemainder =
    of_two<tensors::remainder>("remainder", remainder_gradient<floor_divide>, kBoth);
constexpr Op<> kFmod = of_two<tensors::fmod>("fmod", remainder_gradient<trunc_divide>, kBoth);
constexpr NumberOp kFloorDivideNumber =
    with_a_number<tensors::floor_divide>("floor_divide", flat_quotient);
constexpr NumberOp kTruncDivideNumber =
    with_a_number<tensors::trunc_divide>("trunc_divide", flat_quotient);
constexpr NumberOp kRemainderNumber = with_a_number<tensors::remainder>("remainder", same_gradient);
// a - b floor(a / b): the slope is -floor(a / b).
constexpr NumberOp kRemainderOfNumber{
    .name = "remainder",
    .meta = with_number,
    .rules = elementwise_number_rules,
    .local = [](Locals in, const Kind&, const Number& v,
                const Site&) { return tensors::remainder(v.value, in[0]); },
    .backward = [](const NumberContext& c) -> Tensors {
      const Tensor b = c.input(0);
      const Tensor wholes = floor(div(c.numbers().value, b));
      return {neg(c.grad() * wholes).to(c.dtype(0))};
    },
    .saves = saves_input(0)};
constexpr NumberOp kFmodNumber = with_a_number<tensors::fmod>("fmod", same_gradient);

constexpr Op<> kAnd = of_two<tensors::bitwise_and>("bitwise_and");
constexpr Op<> kOr = of_two<tensors::bitwise_or>("bitwise_or");
constexpr Op<> kXor = of_two<tensors::bitwise_xor>("bitwise_xor");
constexpr Op<> kShiftLeft = of_two<tensors::bitwise_left_shift>("bitwise_left_shift");
constexpr Op<> kShiftRight = of_two<tensors::bitwise_right_shift>("bitwise_right_shift");
constexpr NumberOp kAndNumber = with_a_number<tensors::bitwise_and>("bitwise_and");
constexpr NumberOp kOrNumber = with_a_number<tensors::bitwise_or>("bitwise_or");
constexpr NumberOp kXorNumber = with_a_number<tensors::bitwise_xor>("bitwise_xor");
constexpr NumberOp kShiftLeftNumber =
    with_a_number<tensors::bitwise_left_shift>("bitwise_left_shift");
constexpr NumberOp kShiftRightNumber =
    with_a_number<tensors::bitwise_right_shift>("bitwise_right_shift");
constexpr Op<> kNot = unary<tensors::bitwise_not>("bitwise_not", same_dtype, nullptr);

}  // namespace

Tensor floor_divide(const Tensor& a, const Tensor& b) {
  return call(kFloorDivide, a, b);
}
Tensor floor_divide(const Tensor& a, Scalar b) {
  return with_number(kFloorDivideNumber, a, b);
}
Tensor trunc_divide(const Tensor& a, const Tensor& b) {
  return call(kTruncDivide, a, b);
}
Tensor trunc_divide(const Tensor& a, Scalar b) {
  return with_number(kTruncDivideNumber, a, b);
}
Tensor remainder(const Tensor& a, const Tensor& b) {
  return call(kRemainder, a, b);
}
Tensor remainder(const Tensor& a, Scalar b) {
  return with_number(kRemainderNumber, a, b);
}
Tensor remainder(Scalar a, const Tensor& b) {
  return with_number(kRemainderOfNumber, b, a);
}
Tensor div(const Tensor& a, const Tensor& b, Rounding rounding) {
  return named_call("div", {{"input", a}, {"other", b}}, [&] {
    return rounding == Rounding::floor ? floor_divide(a, b) : trunc_divide(a, b);
  });
}
Tensor div(const Tensor& a, Scalar b, Rounding rounding) {
  return named_call("div", {{"input", a}}, [&] {
    return rounding == Rounding::floor ? floor_divide(a, b) : trunc_divide(a, b);
  });
}
Tensor fmod(const Tensor& a, const Tensor& b) {
  return call(kFmod, a, b);
}
Tensor fmod(const Tensor& a, Scalar b) {
  return with_number(kFmodNumber, a, b);
}
Tensor bitwise_and(const Tensor& a, const Tensor& b) {
  return call(kAnd, a, b);
}
Tensor bitwise_and(const Tensor& a, Scalar b) {
  return with_number(kAndNumber, a, b);
}
Tensor bitwise_or(const Tensor& a, const Tensor& b) {
  return call(kOr, a, b);
}
Tensor bitwise_or(const Tensor& a, Scalar b) {
  return with_number(kOrNumber, a, b);
}
Tensor bitwise_xor(const Tensor& a, const Tensor& b) {
  return call(kXor, a, b);
}
Tensor bitwise_xor(const Tensor& a, Scalar b) {
  return with_number(kXorNumber, a, b);
}
Tensor bitwise_left_shift(const Tensor& a, const Tensor& b) {
  return call(kShiftLeft, a, b);
}
Tensor bitwise_left_shift(const Tensor& a, Scalar b) {
  return with_number(kShiftLeftNumber, a, b);
}
Tensor bitwise_right_shift(const Tensor& a, const Tensor& b) {
  return call(kShiftRight, a, b);
}
Tensor bitwise_right_shift(const Tensor& a, Scalar b) {
  return with_number(kShiftRightNumber, a, b);
}
Tensor bitwise_not(const Tensor& a) {
  return call(kNot, a);
}

}  // namespace dtrun::dtensor
