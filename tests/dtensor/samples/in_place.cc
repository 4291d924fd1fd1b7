// Forms in place: each on a copy of its first input.
#include "dtensor/samples/samples.h"

namespace dtrun::dtensor {
namespace {

using T = const Tensor&;
using FormOfNone = const Tensor& (InPlaceMethods::*)() const;
using FormOfTensor = const Tensor& (InPlaceMethods::*)(const Tensor&) const;
using FormOfNumber = const Tensor& (InPlaceMethods::*)(Scalar) const;

void add_forms(Samples& s, const std::vector<std::pair<const char*, FormOfTensor>>& forms,
               const Tensors& inputs) {
  for (const auto& [name, form] : forms) {
    s.in_place(name, inputs, [form = form](T x, T other) { (x.*form)(other); });
  }
}
void add_number_forms(Samples& s, const std::vector<std::pair<std::string, FormOfNumber>>& forms,
                      const Tensor& input, Scalar number) {
  for (const auto& [name, form] : forms) {
    s.in_place(name + " (number)", {input}, [form = form, number](T x) { (x.*form)(number); });
  }
}
void add_plain_forms(Samples& s, const std::vector<std::pair<const char*, FormOfNone>>& forms,
                     const Tensor& input) {
  for (const auto& [name, form] : forms) {
    s.in_place(name, {input}, [form = form](T x) { (x.*form)(); });
  }
}

void add_arithmetic_in_place(Samples& s) {
  const Tensors two = {s.matrix(), s.matrix()}, three = {s.matrix(), s.matrix(), s.matrix()};
  const Tensors whole_ones = {s.whole(s.shape()), s.whole(s.shape())};
  const Tensors with_power = {s.between(s.shape(), 0.5, 2), s.matrix()};
  add_forms(s,
            {{"add_", &Tensor::add_},
             {"sub_", &Tensor::sub_},
             {"mul_", &Tensor::mul_},
             {"atan2_", &Tensor::atan2_},
             {"logical_and_", &Tensor::logical_and_},
             {"logical_or_", &Tensor::logical_or_},
             {"logical_xor_", &Tensor::logical_xor_}},
            two);
  add_forms(s,
            {{"div_", &Tensor::div_},
             {"floor_divide_", &Tensor::floor_divide_},
             {"remainder_", &Tensor::remainder_},
             {"fmod_", &Tensor::fmod_}},
            whole_ones);
  add_forms(s, {{"pow_", &Tensor::pow_}}, with_power);
  add_number_forms(s,
                   {{"add_", &Tensor::add_},
                    {"sub_", &Tensor::sub_},
                    {"mul_", &Tensor::mul_},
                    {"div_", &Tensor::div_},
                    {"pow_", &Tensor::pow_},
                    {"floor_divide_", &Tensor::floor_divide_},
                    {"remainder_", &Tensor::remainder_},
                    {"fmod_", &Tensor::fmod_}},
                   whole_ones[0], 3);
  add_forms(s,
            {{"eq_", &Tensor::eq_},
             {"ne_", &Tensor::ne_},
             {"lt_", &Tensor::lt_},
             {"le_", &Tensor::le_},
             {"gt_", &Tensor::gt_},
             {"ge_", &Tensor::ge_}},
            whole_ones);
  add_number_forms(s,
                   {{"eq_", &Tensor::eq_},
                    {"ne_", &Tensor::ne_},
                    {"lt_", &Tensor::lt_},
                    {"le_", &Tensor::le_},
                    {"gt_", &Tensor::gt_},
                    {"ge_", &Tensor::ge_}},
                   whole_ones[0], 4);
  add_number_forms(s,
                   {{"logical_and_", &Tensor::logical_and_},
                    {"logical_or_", &Tensor::logical_or_},
                    {"logical_xor_", &Tensor::logical_xor_}},
                   s.numbers(s.shape(), 3).to(DType::f64), 2);
  s.in_place("add_, times", two, [](T x, T y) { x.add_(y, 2); });
  s.in_place("sub_, times", two, [](T x, T y) { x.sub_(y, 2); });
  s.in_place("addcmul_", three, [](T x, T b, T c) { x.addcmul_(b, c, 2); });
  s.in_place("addcdiv_", three, [](T x, T b, T c) { x.addcdiv_(b, c, 2); });
  s.in_place("lerp_", three, [](T x, T end, T weight) { x.lerp_(end, weight); });
  s.in_place("lerp_ (number)", two, [](T x, T end) { x.lerp_(end, 0.25); });
}

void add_bits_in_place(Samples& s) {
  s.in("Bits, in place, on a copy", DType::i64);
  const Tensors two = {s.numbers(s.shape(), 8), s.numbers(s.shape(), 8)};
  add_forms(s,
            {{"bitwise_and_", &Tensor::bitwise_and_},
             {"bitwise_or_", &Tensor::bitwise_or_},
             {"bitwise_xor_", &Tensor::bitwise_xor_},
             {"bitwise_left_shift_", &Tensor::bitwise_left_shift_},
             {"bitwise_right_shift_", &Tensor::bitwise_right_shift_}},
            two);
  add_number_forms(s,
                   {{"bitwise_and_", &Tensor::bitwise_and_},
                    {"bitwise_or_", &Tensor::bitwise_or_},
                    {"bitwise_xor_", &Tensor::bitwise_xor_},
                    {"bitwise_left_shift_", &Tensor::bitwise_left_shift_},
                    {"bitwise_right_shift_", &Tensor::bitwise_right_shift_}},
                   two[0], 3);
  add_plain_forms(s, {{"bitwise_not_", &Tensor::bitwise_not_}}, two[0]);
}

void add_functions_in_place(Samples& s) {
  const Tensor x = s.matrix(), y = s.matrix();
  add_plain_forms(s, {{"neg_", &Tensor::neg_},         {"abs_", &Tensor::abs_},
                      {"exp_", &Tensor::exp_},         {"reciprocal_", &Tensor::reciprocal_},
                      {"sigmoid_", &Tensor::sigmoid_}, {"tanh_", &Tensor::tanh_},
                      {"relu_", &Tensor::relu_},       {"floor_", &Tensor::floor_},
                      {"ceil_", &Tensor::ceil_},       {"round_", &Tensor::round_},
                      {"trunc_", &Tensor::trunc_},     {"square_", &Tensor::square_},
                      {"sign_", &Tensor::sign_},       {"sin_", &Tensor::sin_},
                      {"cos_", &Tensor::cos_},         {"tan_", &Tensor::tan_},
                      {"sinh_", &Tensor::sinh_},       {"cosh_", &Tensor::cosh_},
                      {"atan_", &Tensor::atan_},       {"asinh_", &Tensor::asinh_},
                      {"erf_", &Tensor::erf_},         {"erfc_", &Tensor::erfc_},
                      {"expm1_", &Tensor::expm1_},     {"logical_not_", &Tensor::logical_not_},
                      {"zero_", &Tensor::zero_}},
                  x);
  add_plain_forms(s,
                  {{"log_", &Tensor::log_},
                   {"sqrt_", &Tensor::sqrt_},
                   {"rsqrt_", &Tensor::rsqrt_},
                   {"log2_", &Tensor::log2_},
                   {"log10_", &Tensor::log10_},
                   {"log1p_", &Tensor::log1p_},
                   {"asin_", &Tensor::asin_},
                   {"acos_", &Tensor::acos_},
                   {"atanh_", &Tensor::atanh_}},
                  s.between(s.shape(), 0.1, 0.9));
  add_plain_forms(s, {{"acosh_", &Tensor::acosh_}}, s.between(s.shape(), 1.5, 3));
  s.in_place("round_, decimals 1", {x}, [](T a) { a.round_(1); });
  s.in_place("fill_", {x}, [](T a) { a.fill_(2); });
  s.in_place("clamp_", {x}, [](T a) { a.clamp_(-0.5, 0.5); });
  s.in_place("clamp_, one bound", {x}, [](T a) { a.clamp_(0.5); });
  s.in_place("clamp_, upper bound", {x}, [](T a) { a.clamp_(std::nullopt, 0.5); });
  s.in_place("clamp_, tensors", {x, y, s.between(s.shape(), 2, 3)},
             [](T a, T low, T high) { a.clamp_(low, high); });
  s.in_place("clamp_, one tensor", {x, y}, [](T a, T low) { a.clamp_(low, Tensor()); });
  s.in_place("clamp_, upper tensor", {x, y}, [](T a, T high) { a.clamp_(Tensor(), high); });
}

void add_places_in_place(Samples& s) {
  const Tensor x = s.matrix();
  s.in_place("copy_", {x, s.matrix()}, [](T a, T b) { a.copy_(b); });
  s.in_place("copy_, broadcast", {x, s.made({s.columns})}, [](T a, T b) { a.copy_(b); });
  s.in_place("masked_fill_", {x, s.mask()}, [](T a, T m) { a.masked_fill_(m, 1); });
  const Tensor list = s.numbers({3}, s.rows), beside = s.numbers({2, s.columns}, s.rows);
  const Tensor slices = s.made({3, s.columns});
  s.in_place("index_add_", {x, list, slices}, [](T a, T i, T b) { a.index_add_(0, i, b); });
  s.in_place("index_add_, alpha", {x, list, slices},
             [](T a, T i, T b) { a.index_add_(0, i, b, 2); });
  s.in_place("index_put_", {x, arange(2), s.made({2, s.columns})},
             [](T a, T i, T b) { a.index_put_({i}, b); });
  s.in_place("index_put_, accumulated",
             {x, s.numbers({3}, s.rows), s.numbers({2, 1}, s.columns), s.made({2, 3})},
             [](T a, T i, T j, T b) {
               a.index_put_({i, j}, b, PutMode::accumulate);
             });
  const Tensor each_row = arange(s.rows).unsqueeze(1).expand(s.shape()).clone();
  s.in_place("scatter_", {x, each_row, s.matrix()}, [](T a, T i, T b) { a.scatter_(0, i, b); });
  s.in_place("scatter_ (number)", {x, beside}, [](T a, T i) { a.scatter_(0, i, 2); });
  s.in_place("scatter_add_", {x, beside, s.made({2, s.columns})},
             [](T a, T i, T b) { a.scatter_add_(0, i, b); });
  const Tensor elements = s.made({2, s.columns});
  for (const auto& [name, reduce] :
       {std::pair("add", ScatterReduce::sum), std::pair("multiply", ScatterReduce::prod)}) {
    s.in_place(std::string("scatter_, ") + name, {x, beside, elements},
               [reduce = reduce](T a, T i, T b) { a.scatter_(0, i, b, reduce); });
    s.in_place(std::string("scatter_ (number), ") + name, {x, beside},
               [reduce = reduce](T a, T i) { a.scatter_(0, i, 2, reduce); });
  }
  s.in_place("scatter_reduce_", {x, beside, elements}, [](T a, T i, T b) {
    a.scatter_reduce_(0, i, b, ScatterReduce::prod, IncludeSelf::no);
  });
  s.in_place("tril_", {x}, [](T a) { a.tril_(); });
  s.in_place("triu_", {x}, [](T a) { a.triu_(1); });
  s.in_place("tril_, below", {x}, [](T a) { a.tril_(-1); });
  s.in_place("triu_, all", {x}, [](T a) { a.triu_(); });
  s.in_place("cumsum_", {x}, [](T a) { a.cumsum_(0); });
  s.in_place("cumprod_", {x}, [](T a) { a.cumprod_(0); });
}

}  // namespace

void add_in_place(Samples& s) {
  s.in("In place, on a copy");
  add_arithmetic_in_place(s);
  add_functions_in_place(s);
  add_places_in_place(s);
  add_bits_in_place(s);
}

}  // namespace dtrun::dtensor
