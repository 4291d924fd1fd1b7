// Functions of one tensor.
#include "dtensor/samples/samples.h"

namespace dtrun::dtensor {
namespace {

void add_plain_functions(Samples& s) {
  s.of_one({{"neg", neg},
            {"abs", abs},
            {"sign", sign},
            {"square", square},
            {"floor", floor},
            {"ceil", ceil},
            {"round", round},
            {"trunc", trunc},
            {"exp", exp},
            {"expm1", expm1},
            {"reciprocal", reciprocal},
            {"sin", sin},
            {"cos", cos},
            {"tan", tan},
            {"sinh", sinh},
            {"cosh", cosh},
            {"tanh", tanh},
            {"atan", atan},
            {"asinh", asinh},
            {"erf", erf},
            {"erfc", erfc},
            {"sigmoid", sigmoid},
            {"relu", relu},
            {"silu", silu},
            {"mish", mish},
            {"hardsigmoid", hardsigmoid},
            {"relu6", relu6}},
           s.matrix());
  s.of_one({{"sqrt", sqrt},
            {"rsqrt", rsqrt},
            {"log", log},
            {"log2", log2},
            {"log10", log10},
            {"log1p", log1p},
            {"asin", asin},
            {"acos", acos},
            {"atanh", atanh}},
           s.between(s.shape(), 0.1, 0.9));
  s.of_one({{"acosh", acosh}}, s.between(s.shape(), 1.5, 3));
}

void add_functions_with_options(Samples& s) {
  using T = const Tensor&;
  const Tensor x = s.matrix(), y = s.matrix();
  s.add("leaky_relu", {x}, [](T a) { return leaky_relu(a); });
  s.add("leaky_relu, slope", {x}, [](T a) { return leaky_relu(a, 0.25); });
  s.add("elu", {x}, [](T a) { return elu(a); });
  s.add("elu, alpha", {x}, [](T a) { return elu(a, 2); });
  s.add("gelu", {x}, [](T a) { return gelu(a); });
  s.add("gelu (tanh)", {x}, [](T a) { return gelu(a, GeluForm::tanh); });
  s.add("softplus", {x}, [](T a) { return softplus(a); });
  s.add("softplus, beta and threshold", {x}, [](T a) { return softplus(a, 2, 1); });
  s.add("hardtanh", {x}, [](T a) { return hardtanh(a); });
  s.add("hardtanh, bounds", {x}, [](T a) { return hardtanh(a, 0, 1.5); });
  s.add("clamp", {x}, [](T a) { return clamp(a, -0.5, 0.5); });
  s.add("clamp, one bound", {x}, [](T a) { return clamp(a, 0.5); });
  s.add("clamp, upper bound", {x}, [](T a) { return clamp(a, std::nullopt, 0.5); });
  s.add("clamp of tensors", {x, y, y}, [](T a, T low, T high) { return clamp(a, low, high + 1); });
  s.add("clamp of tensors, one bound", {x, y}, [](T a, T low) { return clamp(a, low, Tensor()); });
  s.add("clamp of tensors, upper bound", {x, y},
        [](T a, T high) { return clamp(a, Tensor(), high); });
  const Tensor places = s.between(s.shape(), 0, 60);
  for (const int decimals : {1, -1, 3}) {
    s.add("round, decimals " + std::to_string(decimals), {places},
          [decimals](T a) { return round(a, decimals); });
  }
}

}  // namespace

void add_functions(Samples& s) {
  s.in("Functions of one tensor");
  add_plain_functions(s);
  add_functions_with_options(s);
}

void add_casts_and_fills(Samples& s) {
  using T = const Tensor&;
  s.in("Casts and fills");
  const Tensor x = s.matrix();
  s.of_one({{"zeros_like", zeros_like}, {"ones_like", ones_like}}, x);
  s.add("full_like", {x}, [](T a) { return full_like(a, 2); });
  s.add("clone", {x}, [](T a) { return a.clone(); });
  s.add("contiguous", {x}, [](T a) { return a.transpose(0, 1).contiguous(); });
  s.add("to", {x}, [](T a) { return a.to(DType::f32); });
  s.add("to (f32 and back)", {x}, [](T a) { return a.to(DType::f32).to(DType::f64); });
  // Of the same sign: what no number of a dtype is has no common value.
  const Tensor positive = s.between(s.shape(), 0.5, 9);
  const std::vector<std::pair<std::string, DType>> dtypes = {
      {"f16", DType::f16}, {"bf16", DType::bf16}, {"i64", DType::i64},      {"i32", DType::i32},
      {"i16", DType::i16}, {"i8", DType::i8},     {"bool", DType::boolean}, {"u8", DType::u8}};
  for (const auto& [name, dtype] : dtypes) {
    s.add("to (" + name + ")", {positive}, [dtype = dtype](T a) { return a.to(dtype); });
  }
}

}  // namespace dtrun::dtensor
