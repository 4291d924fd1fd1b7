// pow, of tensors and numbers on either side.
#include <cmath>

#include "autograd/named_call.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/tensor/ops/pointwise.h"
#include "ops/elementwise.h"

namespace dtrun::dtensor {
namespace {

/// Of x^e to x: e x^(e - 1), and 0 where e is, whatever x is.
Tensor slope_of_base(const Tensor& x, const Tensor& e) {
  return where(eq(e, 0), zeros_like(e), e * pow(x, e - 1));
}
/// Of x^e to e: x^e log(x), and 0 where x is 0 and stays so.
Tensor slope_of_exponent(const Tensor& is_flat, const Tensor& power, const Tensor& log_of_base) {
  return where(is_flat, zeros_like(power), power * log_of_base);
}

constexpr Op<> kPow{.name = "pow",
                    .meta = promoted,
                    .rules = elementwise_rules,
                    .local = run_binary<tensors::pow>,
                    .backward = [](const Context<None, None>& c) -> Tensors {
                      const Tensor x = c.input(0), e = c.input(1);
                      Tensor of_base, of_exponent;
                      if (c.needs(0)) of_base = back_to(c, 0, c.grad() * slope_of_base(x, e));
                      if (c.needs(1)) {
                        const Tensor is_flat = logical_and(eq(x, 0), ge(e, 0));
                        of_exponent = back_to(
                            c, 1, c.grad() * slope_of_exponent(is_flat, c.output(), log(x)));
                      }
                      return {of_base, of_exponent};
                    },
                    .saves = {0b11, true}};

constexpr NumberOp kPowNumber{
    .name = "pow",
    .meta = with_number,
    .rules = elementwise_number_rules,
    .local = run_with_number<tensors::pow>,
    .backward = [](const NumberContext& c) -> Tensors {
      const Scalar exponent = c.numbers().value;
      const double e = exponent.to_double();
      if (e == 0) return {zeros_like(c.grad()).to(c.dtype(0))};
      const bool whole = exponent.kind() != Scalar::Kind::floating;
      const Scalar less = whole ? Scalar(exponent.to_i64() - 1) : Scalar(e - 1);
      return {(c.grad() * (pow(c.input(0), less) * exponent)).to(c.dtype(0))};
    },
    .saves = saves_input(0)};

constexpr NumberOp kPowOfNumber{.name = "rpow",
                                .meta = with_number,
                                .rules = elementwise_number_rules,
                                .local = [](Locals in, const Kind&, const Number& v,
                                            const Site&) { return tensors::pow(v.value, in[0]); },
                                .backward = [](const NumberContext& c) -> Tensors {
                                  const double base = c.numbers().value.to_double();
                                  const Tensor e = c.input(0), power = c.output();
                                  if (base != 0)
                                    return {(c.grad() * (power * std::log(base))).to(c.dtype(0))};
                                  const Tensor slope =
                                      slope_of_exponent(ge(e, 0), power, log(zeros_like(power)));
                                  return {(c.grad() * slope).to(c.dtype(0))};
                                },
                                .saves = {1, true}};

}  // namespace

Tensor pow(const Tensor& base, const Tensor& exponent) {
  return call(kPow, base, exponent);
}
Tensor pow(const Tensor& base, Scalar exponent) {
  return with_number(kPowNumber, base, exponent);
}
Tensor pow(Scalar base, const Tensor& exponent) {
  return named_call("pow", {{"exponent", exponent}},
                    [&] { return with_number(kPowOfNumber, exponent, base); });
}

}  // namespace dtrun::dtensor
