// Arithmetic and bits.
#include "dtensor/samples/samples.h"

namespace dtrun::dtensor {
namespace {

void add_two_tensors(Samples& s) {
  s.of_two({{"add", add}, {"sub", sub}, {"mul", mul}, {"div", div}}, s.matrix(), s.matrix());
  s.of_two({{"pow", pow}}, s.between(s.shape(), 0.5, 2), s.matrix());
  s.of_two({{"floor_divide", floor_divide},
            {"trunc_divide", trunc_divide},
            {"remainder", remainder},
            {"fmod", fmod}},
           s.whole(s.shape()), s.whole(s.shape()));
  s.of_two({{"atan2", atan2}, {"logaddexp", logaddexp}, {"maximum", maximum}, {"minimum", minimum}},
           s.matrix(), s.matrix());
  s.of_two({{"add, broadcast", add}, {"mul, broadcast", mul}}, s.made({s.rows, 1}),
           s.made({s.columns}));
  s.of_two({{"sub, one element", sub}, {"div, one element", div}}, s.matrix(), s.made({}));
  const Tensor x = s.matrix(), y = s.whole(s.shape());
  s.add("div, rounded", {x, y},
        [](const Tensor& a, const Tensor& b) { return div(a, b, Rounding::floor); });
  s.add("div, truncated", {x, y},
        [](const Tensor& a, const Tensor& b) { return div(a, b, Rounding::trunc); });
}

void add_numbers(Samples& s) {
  using WithNumber = Tensor (*)(const Tensor&, Scalar);
  const std::vector<std::pair<std::string, WithNumber>> with_number = {
      {"add", add},
      {"sub", sub},
      {"mul", mul},
      {"div", div},
      {"pow", pow},
      {"remainder", remainder},
      {"fmod", fmod},
      {"floor_divide", floor_divide},
      {"trunc_divide", trunc_divide}};
  for (const auto& [name, op] : with_number) {
    s.add(name + " (number)", {s.whole(s.shape())},
          [op = op](const Tensor& a) { return op(a, 3); });
  }
  using OfNumber = Tensor (*)(Scalar, const Tensor&);
  const std::vector<std::pair<std::string, OfNumber>> of_number = {
      {"sub", sub}, {"div", div}, {"remainder", remainder}};
  for (const auto& [name, op] : of_number) {
    s.add(name + " of a number", {s.whole(s.shape())},
          [op = op](const Tensor& a) { return op(5, a); });
  }
  s.add("maximum (number)", {s.matrix()}, [](const Tensor& a) { return maximum(a, 0.5); });
  s.add("minimum (number)", {s.matrix()}, [](const Tensor& a) { return minimum(a, 0.5); });
  s.add("pow of a number", {s.matrix()}, [](const Tensor& a) { return pow(2.0, a); });
  s.add("pow (fraction)", {s.between(s.shape(), 0.5, 2)},
        [](const Tensor& a) { return pow(a, -1.5); });
  s.add("div (number), rounded", {s.matrix()},
        [](const Tensor& a) { return div(a, 3, Rounding::floor); });
  s.add("div (number), truncated", {s.matrix()},
        [](const Tensor& a) { return div(a, 3, Rounding::trunc); });
}

}  // namespace

void add_arithmetic(Samples& s) {
  s.in("Arithmetic");
  add_two_tensors(s);
  add_numbers(s);
  const Tensors three = {s.matrix(), s.matrix(), s.matrix()};
  using T = const Tensor&;
  s.add("addcmul", three, [](T a, T b, T c) { return addcmul(a, b, c, 2); });
  s.add("addcdiv", three, [](T a, T b, T c) { return addcdiv(a, b, c, 2); });
  s.add("addcmul, once", three, [](T a, T b, T c) { return addcmul(a, b, c); });
  s.add("addcdiv, once", three, [](T a, T b, T c) { return addcdiv(a, b, c); });
  s.add("lerp", three, [](T a, T b, T c) { return lerp(a, b, c); });
  s.add("lerp (number)", {three[0], three[1]}, [](T a, T b) { return lerp(a, b, 0.25); });
}

void add_bits(Samples& s) {
  s.in("Bits", DType::i64);
  const Tensor a = s.numbers(s.shape(), 8), b = s.numbers(s.shape(), 8);
  s.of_two({{"bitwise_and", bitwise_and},
            {"bitwise_or", bitwise_or},
            {"bitwise_xor", bitwise_xor},
            {"bitwise_left_shift", bitwise_left_shift},
            {"bitwise_right_shift", bitwise_right_shift}},
           a, b);
  s.of_one({{"bitwise_not", bitwise_not}}, a);
  using WithNumber = Tensor (*)(const Tensor&, Scalar);
  const std::vector<std::pair<std::string, WithNumber>> with_number = {
      {"bitwise_and", bitwise_and},
      {"bitwise_or", bitwise_or},
      {"bitwise_xor", bitwise_xor},
      {"bitwise_left_shift", bitwise_left_shift},
      {"bitwise_right_shift", bitwise_right_shift}};
  for (const auto& [name, op] : with_number) {
    s.add(name + " (number)", {a}, [op = op](const Tensor& x) { return op(x, 3); });
  }
  using T = const Tensor&;
  s.add("operator &", {a, b}, [](T x, T y) { return x & y; });
  // Its bar would end a cell of the table.
  s.add("operator bitor", {a, b}, [](T x, T y) { return x | y; });
  s.add("operator ^", {a, b}, [](T x, T y) { return x ^ y; });
  s.add("operator ~", {a}, [](T x) { return ~x; });
}

}  // namespace dtrun::dtensor
