// Comparisons, logic and choice.
#include "dtensor/samples/samples.h"

namespace dtrun::dtensor {
namespace {

using WithNumber = Tensor (*)(const Tensor&, Scalar);

void add_compared(Samples& s, const Tensor& a, const Tensor& b) {
  s.of_two({{"eq", eq},
            {"ne", ne},
            {"lt", lt},
            {"le", le},
            {"gt", gt},
            {"ge", ge},
            {"logical_and", logical_and},
            {"logical_or", logical_or},
            {"logical_xor", logical_xor}},
           a, b);
  s.of_one(
      {{"logical_not", logical_not}, {"isnan", isnan}, {"isinf", isinf}, {"isfinite", isfinite}},
      a);
  const std::vector<std::pair<std::string, WithNumber>> with_number = {
      {"eq", eq}, {"ne", ne}, {"lt", lt}, {"le", le}, {"gt", gt}, {"ge", ge}};
  for (const auto& [name, op] : with_number) {
    s.add(name + " (number)", {a}, [op = op](const Tensor& x) { return op(x, 4); });
  }
  using T = const Tensor&;
  s.add("operator ==", {a, b}, [](T x, T y) { return x == y; });
  s.add("operator !=", {a, b}, [](T x, T y) { return x != y; });
  s.add("operator <", {a, b}, [](T x, T y) { return x < y; });
  s.add("operator <=", {a, b}, [](T x, T y) { return x <= y; });
  s.add("operator >", {a, b}, [](T x, T y) { return x > y; });
  s.add("operator >=", {a, b}, [](T x, T y) { return x >= y; });
}

void add_logic_with_numbers(Samples& s) {
  const Tensor some_zeros = s.numbers(s.shape(), 3).to(DType::f64);
  const std::vector<std::pair<std::string, WithNumber>> with_number = {
      {"logical_and", logical_and}, {"logical_or", logical_or}, {"logical_xor", logical_xor}};
  for (const auto& [name, op] : with_number) {
    s.add(name + " (number)", {some_zeros}, [op = op](const Tensor& x) { return op(x, 2); });
  }
}

}  // namespace

void add_comparisons(Samples& s) {
  s.in("Comparisons and choice");
  const Tensor a = s.whole(s.shape()), b = s.whole(s.shape());
  add_compared(s, a, b);
  add_logic_with_numbers(s);
  using T = const Tensor&;
  const Tensor mask = s.mask(), line = gt(s.made({s.columns}), 0);
  s.add("where", {mask, a, b}, [](T m, T x, T y) { return where(m, x, y); });
  s.add("where, else a number", {mask, a}, [](T m, T x) { return where(m, x, 2); });
  s.add("where, a number first", {mask, b}, [](T m, T y) { return where(m, 3, y); });
  s.add("where, two numbers", {mask}, [](T m) { return where(m, 2.5, 3.5); });
  s.add("where, broadcast", {line, s.whole({s.rows, 1}), b},
        [](T m, T x, T y) { return where(m, x, y); });
  s.add("masked_fill", {a, mask}, [](T x, T m) { return masked_fill(x, m, 1); });
  s.add("masked_fill, broadcast", {a, line}, [](T x, T m) { return masked_fill(x, m, 1); });
}

}  // namespace dtrun::dtensor
