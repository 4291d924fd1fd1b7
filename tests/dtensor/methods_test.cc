// Methods of Tensor are the functions of the same names: each one that the headers declare.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>

#include "dtrun/dtensor/autograd/tensor.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/dtensor/ops/elementwise.h"
#include "dtrun/dtensor/ops/index.h"
#include "dtrun/dtensor/ops/products.h"
#include "dtrun/dtensor/ops/reduction.h"
#include "dtrun/dtensor/ops/rows.h"
#include "dtrun/dtensor/ops/views.h"

namespace dtrun::dtensor {
namespace {

/// A method and the function of its name.
struct MethodPair {
  std::string name;
  Tensor by_method;
  Tensor by_function;
};

#define DT_OF_ONE(name) \
  { #name, x.name(), name(x) }
/// @param x of numbers between 0 and 1
std::vector<MethodPair> methods_of_one(const Tensor& x) {
  const Tensor bits = (x * 100.0).to(DType::i64), above = x + 1.0;
  return {DT_OF_ONE(abs),
          DT_OF_ONE(neg),
          DT_OF_ONE(sign),
          DT_OF_ONE(square),
          DT_OF_ONE(exp),
          DT_OF_ONE(log),
          DT_OF_ONE(log2),
          DT_OF_ONE(log1p),
          DT_OF_ONE(expm1),
          DT_OF_ONE(sqrt),
          DT_OF_ONE(rsqrt),
          DT_OF_ONE(reciprocal),
          DT_OF_ONE(sin),
          DT_OF_ONE(cos),
          DT_OF_ONE(tanh),
          DT_OF_ONE(erf),
          DT_OF_ONE(sigmoid),
          DT_OF_ONE(relu),
          DT_OF_ONE(floor),
          DT_OF_ONE(ceil),
          DT_OF_ONE(round),
          {"round", x.round(1), round(x, 1)},
          DT_OF_ONE(trunc),
          DT_OF_ONE(isnan),
          DT_OF_ONE(logical_not),
          DT_OF_ONE(log10),
          DT_OF_ONE(tan),
          DT_OF_ONE(sinh),
          DT_OF_ONE(cosh),
          DT_OF_ONE(asin),
          DT_OF_ONE(acos),
          DT_OF_ONE(atan),
          DT_OF_ONE(asinh),
          DT_OF_ONE(atanh),
          DT_OF_ONE(erfc),
          DT_OF_ONE(isinf),
          DT_OF_ONE(isfinite),
          {"acosh", above.acosh(), acosh(above)},
          {"bitwise_not", bits.bitwise_not(), bitwise_not(bits)}};
}
#undef DT_OF_ONE

#define DT_OF_TWO(name) \
  { #name, x.name(y), name(x, y) }
#define DT_OF_NUMBER(name) \
  { #name, x.name(Scalar(2)), name(x, Scalar(2)) }
std::vector<MethodPair> methods_of_two(const Tensor& x, const Tensor& y) {
  return {DT_OF_TWO(add),        DT_OF_NUMBER(add),       DT_OF_TWO(sub),
          DT_OF_NUMBER(sub),     DT_OF_TWO(mul),          DT_OF_NUMBER(mul),
          DT_OF_TWO(div),        DT_OF_NUMBER(div),       DT_OF_TWO(pow),
          DT_OF_NUMBER(pow),     DT_OF_TWO(floor_divide), DT_OF_NUMBER(floor_divide),
          DT_OF_TWO(remainder),  DT_OF_NUMBER(remainder), DT_OF_TWO(fmod),
          DT_OF_NUMBER(fmod),    DT_OF_TWO(maximum),      DT_OF_NUMBER(maximum),
          DT_OF_TWO(minimum),    DT_OF_NUMBER(minimum),   DT_OF_TWO(eq),
          DT_OF_NUMBER(eq),      DT_OF_TWO(ne),           DT_OF_NUMBER(ne),
          DT_OF_TWO(lt),         DT_OF_NUMBER(lt),        DT_OF_TWO(le),
          DT_OF_NUMBER(le),      DT_OF_TWO(gt),           DT_OF_NUMBER(gt),
          DT_OF_TWO(ge),         DT_OF_NUMBER(ge),        DT_OF_TWO(atan2),
          DT_OF_TWO(logaddexp),  DT_OF_TWO(logical_and),  DT_OF_TWO(logical_or),
          DT_OF_TWO(logical_xor)};
}
std::vector<MethodPair> methods_of_bits(const Tensor& x, const Tensor& y) {
  return {DT_OF_TWO(bitwise_and),         DT_OF_NUMBER(bitwise_and),
          DT_OF_TWO(bitwise_or),          DT_OF_NUMBER(bitwise_or),
          DT_OF_TWO(bitwise_xor),         DT_OF_NUMBER(bitwise_xor),
          DT_OF_TWO(bitwise_left_shift),  DT_OF_NUMBER(bitwise_left_shift),
          DT_OF_TWO(bitwise_right_shift), DT_OF_NUMBER(bitwise_right_shift)};
}
#undef DT_OF_NUMBER
#undef DT_OF_TWO

std::vector<MethodPair> methods_of_choice(const Tensor& x, const Tensor& y) {
  const Tensor mask = x.gt(0), low = y - 1.0, high = y + 0.5;
  return {{"clamp", x.clamp(-0.5, 0.5), clamp(x, -0.5, 0.5)},
          {"clamp", x.clamp(low, high), clamp(x, low, high)},
          {"masked_fill", x.masked_fill(mask, 3), masked_fill(x, mask, 3)},
          {"where", x.where(mask, y), where(mask, x, y)},
          {"where", x.where(mask, 2), where(mask, x, 2)},
          {"lerp", x.lerp(y, y), lerp(x, y, y)},
          {"lerp", x.lerp(y, 0.25), lerp(x, y, 0.25)},
          {"addcmul", x.addcmul(x, y, 2), addcmul(x, x, y, 2)},
          {"addcdiv", x.addcdiv(x, y, 2), addcdiv(x, x, y, 2)}};
}

std::vector<MethodPair> methods_of_reductions(const Tensor& x) {
  const Tensor mask = x.gt(0);
  return {{"sum", x.sum(), sum(x)},
          {"sum", x.sum({1}, true), sum(x, {1}, true)},
          {"mean", x.mean(), mean(x)},
          {"mean", x.mean({0}), mean(x, {0})},
          {"prod", x.prod(), prod(x)},
          {"prod", x.prod(1, true), prod(x, 1, true)},
          {"any", mask.any({1}), any(mask, {1})},
          {"all", mask.all({1}), all(mask, {1})},
          {"amax", x.amax({1}, true), amax(x, {1}, true)},
          {"amin", x.amin({0}), amin(x, {0})},
          {"max", x.max(), max(x)},
          {"max", x.max(1).values, max(x, 1).values},
          {"max", x.max(1).indices, max(x, 1).indices},
          {"min", x.min(), min(x)},
          {"min", x.min(1, true).values, min(x, 1, true).values},
          {"min", x.min(1).indices, min(x, 1).indices},
          {"argmax", x.argmax(), argmax(x)},
          {"argmax", x.argmax(1, true), argmax(x, 1, true)},
          {"argmin", x.argmin(), argmin(x)},
          {"argmin", x.argmin(0), argmin(x, 0)},
          {"var", x.var({1}, 0, true), var(x, {1}, 0, true)},
          {"stddev", x.stddev({1}, 0), stddev(x, {1}, 0)},
          {"std", x.std({1}, 0), dtensor::std(x, {1}, 0)},
          {"norm", x.norm(1, {1}), norm(x, 1, {1})},
          {"logsumexp", x.logsumexp({1}), logsumexp(x, {1})},
          {"cumsum", x.cumsum(1), cumsum(x, 1)},
          {"cumprod", x.cumprod(0), cumprod(x, 0)},
          {"sum", x.sum({0}, true, DType::f64), sum(x, {0}, true, DType::f64)},
          {"sum", x.sum(DType::f64), sum(x, DType::f64)},
          {"mean", x.mean({0}, true, DType::f64), mean(x, {0}, true, DType::f64)},
          {"mean", x.mean(DType::f64), mean(x, DType::f64)},
          {"prod", x.prod(1, true, DType::i32), prod(x, 1, true, DType::i32)},
          {"prod", x.prod(DType::f64), prod(x, DType::f64)},
          {"cumsum", x.cumsum(1, DType::i32), cumsum(x, 1, DType::i32)},
          {"cumprod", x.cumprod(0, DType::f64), cumprod(x, 0, DType::f64)},
          {"softmax", x.softmax(1, DType::f64), softmax(x, 1, DType::f64)},
          {"log_softmax", x.log_softmax(1, DType::f64), log_softmax(x, 1, DType::f64)},
          {"softmax", x.softmax(1), softmax(x, 1)},
          {"log_softmax", x.log_softmax(1), log_softmax(x, 1)}};
}

std::vector<MethodPair> methods_of_places(const Tensor& x) {
  const Tensor rows = tensor({1, 0}), beside = tensor({{1, 0, 1}}), mask = x.gt(0);
  return {{"index_select", x.index_select(0, rows), index_select(x, 0, rows)},
          {"index_add", x.index_add(0, rows, x), index_add(x, 0, rows, x)},
          {"gather", x.gather(0, beside), gather(x, 0, beside)},
          {"scatter", x.scatter(0, beside, x), scatter(x, 0, beside, x)},
          {"scatter_add", x.scatter_add(0, beside, x), scatter_add(x, 0, beside, x)},
          {"scatter_reduce", x.scatter_reduce(0, beside, x, ScatterReduce::amax, IncludeSelf::no),
           scatter_reduce(x, 0, beside, x, ScatterReduce::amax, IncludeSelf::no)},
          {"scatter", x.scatter(0, beside, x, ScatterReduce::prod),
           scatter(x, 0, beside, x, ScatterReduce::prod)},
          {"scatter", x.scatter(0, beside, 7, ScatterReduce::sum),
           scatter(x, 0, beside, 7, ScatterReduce::sum)},
          {"index_put", x.index_put({rows}, x), index_put(x, rows, x)},
          {"masked_select", x.masked_select(mask), masked_select(x, mask)},
          {"nonzero", x.nonzero(), nonzero(x)},
          {"flip", x.flip({1}), flip(x, {1})},
          {"roll", x.roll({1}, {1}), roll(x, {1}, {1})},
          {"tril", x.tril(), tril(x)},
          {"triu", x.triu(1), triu(x, 1)},
          {"sort", x.sort(1).values, sort(x, 1).values},
          {"argsort", x.argsort(1), argsort(x, 1)},
          {"topk", x.topk(2).indices, topk(x, 2).indices},
          {"flatten", x.flatten(), flatten(x)},
          {"unflatten", x.unflatten(1, {3, 1}), unflatten(x, 1, {3, 1})},
          {"movedim", x.movedim(0, 1), movedim(x, 0, 1)},
          {"unbind", x.unbind(1)[2], unbind(x, 1)[2]},
          {"split", x.split(2, 1)[0], split(x, 2, 1)[0]},
          {"chunk", x.chunk(2)[1], chunk(x, 2)[1]},
          {"repeat", x.repeat({2, 1}), repeat(x, {2, 1})},
          {"expand_as", x.select(0, 0).expand_as(x), x.select(0, 0).expand({2, 3})},
          {"view_as", x.view_as(x.t().contiguous()), x.view({3, 2})},
          {"reshape_as", x.t().reshape_as(x), x.t().reshape({2, 3})},
          {"scatter", x.scatter(0, beside, 7), scatter(x, 0, beside, 7)},
          {"split", x.split({1, 2}, 1)[1], split(x, {1, 2}, 1)[1]}};
}

std::vector<MethodPair> methods_of_products(const Tensor& x) {
  const Tensor t = x.t(), line = x.select(0, 0), batch = x.unsqueeze(0), turned = t.unsqueeze(0);
  const Tensor square = mm(x, t);
  return {{"mm", x.mm(t), mm(x, t)},
          {"bmm", batch.bmm(turned), bmm(batch, turned)},
          {"mv", x.mv(line), mv(x, line)},
          {"dot", line.dot(line), dot(line, line)},
          {"addmm", square.addmm(x, t, {.beta = 2}), addmm(square, x, t, {.beta = 2})},
          {"baddbmm", square.unsqueeze(0).baddbmm(batch, turned),
           baddbmm(square.unsqueeze(0), batch, turned)},
          {"matmul", x.matmul(t), matmul(x, t)}};
}

/// The same shape, dtype and bits.
bool is_same(const Tensor& a, const Tensor& b) {
  const std::vector<double> one = a.to_vector(), other = b.to_vector();
  const auto bits = [](double x, double y) {
    return std::bit_cast<std::uint64_t>(x) == std::bit_cast<std::uint64_t>(y);
  };
  return a.shape() == b.shape() && a.dtype() == b.dtype() && std::ranges::equal(one, other, bits);
}

std::vector<MethodPair> all_methods() {
  const tensors::TensorOptions doubles{.dtype = DType::f64};
  const Tensor x = randn({2, 3}, {1}, doubles), y = randn({2, 3}, {2}, doubles);
  const Tensor numbers = (abs(x) * 100.0).to(DType::i64), few = tensor({{0, 1, 2}, {3, 4, 5}});
  std::vector<MethodPair> all = methods_of_one(sigmoid(x));
  for (const auto& some :
       {methods_of_two(abs(x), y), methods_of_bits(numbers, few), methods_of_choice(x, sigmoid(y)),
        methods_of_reductions(x), methods_of_places(x), methods_of_products(x)})
    all.insert(all.end(), some.begin(), some.end());
  return all;
}

TEST(MethodsTest, EachIsTheFunctionOfItsName) {
  for (const MethodPair& pair : all_methods())
    EXPECT_TRUE(is_same(pair.by_method, pair.by_function)) << pair.name;
  const Tensor x = randn({2, 3}, {1});
  EXPECT_TRUE(x.equal(x.clone()) && !x.equal(x * 2));
}

/// How often each name is declared in the headers of methods that make a new tensor.
std::map<std::string, int> declared_methods() {
  std::map<std::string, int> declared;
  const std::regex declaration("\\n  (?:Tensor|Tensors|Sorted|Extremes) ([a-z_0-9]+)\\(");
  for (const char* header : {"element_methods.h", "reduction_methods.h", "place_methods.h"}) {
    std::ifstream file(std::string(DTRUN_HEADERS "/dtrun/dtensor/autograd/") + header);
    std::ostringstream text;
    text << file.rdbuf();
    const std::string all = text.str();
    EXPECT_FALSE(all.empty()) << header;
    for (std::sregex_iterator at(all.begin(), all.end(), declaration), end; at != end; ++at)
      ++declared[(*at)[1]];
  }
  return declared;
}

TEST(MethodsTest, EachThatTheHeadersDeclareIsHere) {
  std::map<std::string, int> here;
  for (const MethodPair& pair : all_methods()) ++here[pair.name];
  const std::map<std::string, int> declared = declared_methods();
  int overloads = 0;
  for (const auto& [name, count] : declared) {
    overloads += count;
    EXPECT_GE(here[name], count) << name << " has " << count << " overloads";
  }
  std::printf("%zu methods, %d overloads\n", declared.size(), overloads);
  EXPECT_GT(overloads, 150);
}

}  // namespace
}  // namespace dtrun::dtensor
