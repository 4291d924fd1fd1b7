// Functions of each element by itself.
#include "dtensor/operators/operators.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/elementwise.h"

namespace dtrun::dtensor::vectors {
namespace {

void add_arithmetic(Operators& table) {
  table["asinh"] = of_one(asinh);
  table["bitwise_not"] = of_one(bitwise_not);
  table["ones_like"] = of_one(ones_like);
  const std::pair<const char*, Tensor (*)(const Tensor&, const Tensor&)> binary[] = {
      {"pow", pow},
      {"atan2", atan2},
      {"logaddexp", logaddexp},
      {"floor_divide", floor_divide},
      {"remainder", remainder},
      {"fmod", fmod},
      {"bitwise_and", bitwise_and},
      {"bitwise_or", bitwise_or},
      {"bitwise_xor", bitwise_xor}};
  for (const auto& [name, op] : binary) table[name] = of_two(op);
  table["remainder_scalar"] = with_number(remainder);
  table["pow_scalar"] = [](const Call& c) -> Tensors { return {pow(c.in(0), c.number("other"))}; };
  table["full_like"] = [](const Call& c) -> Tensors {
    return {full_like(c.in(0), c.number("value"))};
  };
  table["masked_fill"] = [](const Call& c) -> Tensors {
    return {masked_fill(c.in(0), c.in(1), c.number("value"))};
  };
  table["clamp"] = [](const Call& c) -> Tensors {
    return {clamp(c.in(0), c.number_or_none("min"), c.number_or_none("max"))};
  };
  table["hardtanh"] = [](const Call& c) -> Tensors {
    return {hardtanh(c.in(0), c.number_or_none("min").value_or(-1.0),
                     c.number_or_none("max").value_or(1.0))};
  };
  const auto value_of = [](const Call& c) { return c.number_or_none("value").value_or(1); };
  table["addcmul"] = [value_of](const Call& c) -> Tensors {
    return {addcmul(c.in(0), c.in(1), c.in(2), value_of(c))};
  };
  table["addcdiv"] = [value_of](const Call& c) -> Tensors {
    return {addcdiv(c.in(0), c.in(1), c.in(2), value_of(c))};
  };
}

void add_activations(Operators& table) {
  table["where"] = [](const Call& c) -> Tensors { return {where(c.in(0), c.in(1), c.in(2))}; };
  table["gelu"] = [](const Call& c) -> Tensors {
    return {gelu(c.in(0), c.text("approximate") == "tanh" ? GeluForm::tanh : GeluForm::erf)};
  };
  table["leaky_relu"] = [](const Call& c) -> Tensors {
    return {leaky_relu(c.in(0), c.number("negative_slope").to_double())};
  };
  table["softplus"] = [](const Call& c) -> Tensors { return {softplus(c.in(0))}; };
  table["to"] = [](const Call& c) -> Tensors {
    return {c.in(0).to(tensors::parse_dtype(c.text("dtype")))};
  };
}

}  // namespace

void add_pointwise(Operators& table) {
  table["add"] = [](const Call& c) -> Tensors {
    return {add(c.in(0), c.has("alpha") ? mul(c.in(1), c.number("alpha")) : c.in(1))};
  };
  table["sub"] = [](const Call& c) -> Tensors {
    return {sub(c.in(0), c.has("alpha") ? mul(c.in(1), c.number("alpha")) : c.in(1))};
  };
  table["mul"] = of_two(mul);
  table["div"] = of_two(div);
  table["add_scalar"] = with_number(add);
  table["sub_scalar"] = with_number(sub);
  table["mul_scalar"] = with_number(mul);
  table["div_scalar"] = with_number(div);
  table["rsub_scalar"] = number_with(sub);
  table["scalar_div"] = number_with(div);
  table["eq_scalar"] = with_number(eq);
  table["gt_scalar"] = with_number(gt);
  table["lt_scalar"] = with_number(lt);
  const std::pair<const char*, Tensor (*)(const Tensor&)> unary[] = {{"abs", abs},
                                                                     {"neg", neg},
                                                                     {"sign", sign},
                                                                     {"square", square},
                                                                     {"floor", floor},
                                                                     {"ceil", ceil},
                                                                     {"round", round},
                                                                     {"trunc", trunc},
                                                                     {"sqrt", sqrt},
                                                                     {"rsqrt", rsqrt},
                                                                     {"exp", exp},
                                                                     {"log", log},
                                                                     {"log1p", log1p},
                                                                     {"expm1", expm1},
                                                                     {"sin", sin},
                                                                     {"cos", cos},
                                                                     {"tanh", tanh},
                                                                     {"atan", atan},
                                                                     {"erf", erf},
                                                                     {"sigmoid", sigmoid},
                                                                     {"relu", relu},
                                                                     {"silu", silu},
                                                                     {"isnan", isnan},
                                                                     {"logical_not", logical_not},
                                                                     {"reciprocal", reciprocal},
                                                                     {"zeros_like", zeros_like}};
  for (const auto& [name, op] : unary) table[name] = of_one(op);
  const std::pair<const char*, Tensor (*)(const Tensor&, const Tensor&)> binary[] = {
      {"eq", eq},
      {"ne", ne},
      {"lt", lt},
      {"le", le},
      {"gt", gt},
      {"ge", ge},
      {"maximum", maximum},
      {"minimum", minimum},
      {"logical_and", logical_and},
      {"logical_or", logical_or},
      {"logical_xor", logical_xor}};
  for (const auto& [name, op] : binary) table[name] = of_two(op);
  add_activations(table);
  add_arithmetic(table);
}

}  // namespace dtrun::dtensor::vectors
