// What the goldens do not show of pointwise operations: bits, layouts, places, errors.
#include "dtrun/tensor/ops/pointwise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <utility>

#include "dtrun/base/error.h"
#include "dtrun/tensor/literal.h"
#include "dtrun/tensor/ops.h"
#include "dtrun/tensor/ops/index.h"
#include "dtrun/tensor/threads.h"

namespace dtrun::tensors {
namespace {

using Values = std::vector<double>;

bool same_bits(const LocalTensor& a, const LocalTensor& b) {
  const LocalTensor left = a.contiguous();
  const LocalTensor right = b.contiguous();
  return left.dtype() == right.dtype() && left.shape() == right.shape() &&
         std::memcmp(left.data(), right.data(), left.bytes()) == 0;
}

std::string summary_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const base::Error& error) {
    return error.summary();
  }
  return "no error";
}

class PointwiseTest : public ::testing::Test {
 protected:
  void TearDown() override { set_num_threads(before_); }
  const int before_ = num_threads();
};

using Function = std::function<LocalTensor(const LocalTensor&)>;
const Function kFunctions[] = {[](const LocalTensor& x) { return exp(x); },
                               [](const LocalTensor& x) { return gelu(x); },
                               [](const LocalTensor& x) { return tanh(x); },
                               [](const LocalTensor& x) { return softplus(x); },
                               [](const LocalTensor& x) { return pow(abs(x), 1.7); },
                               [](const LocalTensor& x) { return x * x + 0.3; },
                               [](const LocalTensor& x) { return lt(x, 0.5); },
                               [](const LocalTensor& x) { return sin(x) / add(x, x); }};

TEST_F(PointwiseTest, BitsDoNotDependOnTheNumberOfThreads) {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
    const LocalTensor x = randn({101, 1003}, {.seed = 5}).to(dtype);
    for (const Function& function : kFunctions) {
      set_num_threads(1);
      const LocalTensor expected = function(x);
      for (const int threads : {2, 4}) {
        set_num_threads(threads);
        EXPECT_TRUE(same_bits(function(x), expected)) << threads;
      }
    }
  }
}

TEST_F(PointwiseTest, BitsDoNotDependOnTheLayout) {
  const LocalTensor x = randn({37, 41, 13}, {.seed = 6});
  for (const Function& function : kFunctions) {
    const LocalTensor expected = function(x);
    const LocalTensor turned = x.permute({2, 0, 1}).clone().permute({1, 2, 0});
    EXPECT_TRUE(same_bits(function(turned), expected));
    const LocalTensor spread = empty({37, 41, 39}).slice(2, 1, 39, 3).copy_(x);
    EXPECT_TRUE(same_bits(function(spread), expected));
    EXPECT_TRUE(same_bits(function(x.slice(0, 3, 5)), expected.slice(0, 3, 5)));
    EXPECT_TRUE(same_bits(function(x[7][3]), expected[7][3]));
  }
}

struct Exact {
  const char* name;
  Function function;
  double (*exact)(double);
};
const Exact kExact[] = {
    {"exp", [](const LocalTensor& x) { return exp(x); }, [](double x) { return std::exp(x); }},
    {"tanh", [](const LocalTensor& x) { return tanh(x); }, [](double x) { return std::tanh(x); }},
    {"erf", [](const LocalTensor& x) { return erf(x); }, [](double x) { return std::erf(x); }}};

/// Numbers of all sizes and signs, infinities, nan.
LocalTensor every_so_many_floats(std::uint32_t step) {
  const auto count = static_cast<std::int64_t>(0xffffffffu / step);
  LocalTensor x = empty({count + 8});
  float* const values = x.data_as<float>();
  for (std::int64_t i = 0; i < count; ++i)
    values[i] = std::bit_cast<float>(static_cast<std::uint32_t>(i) * step);
  const float infinity = std::numeric_limits<float>::infinity();
  const float special[] = {0.0f, -0.0f, infinity, -infinity, 88.722839f, 88.72284f, -103.97f, -104};
  std::ranges::copy(special, values + count);
  return x;
}

TEST_F(PointwiseTest, FunctionsAreWithinAFewUnitsInTheLastPlace) {
  const LocalTensor x = every_so_many_floats(4099);
  const float* const from = x.data_as<const float>();
  for (const Exact& each : kExact) {
    const LocalTensor result = each.function(x);
    const float* const values = result.data_as<const float>();
    double worst = 0;
    for (std::int64_t i = 0; i < x.numel(); ++i) {
      const double exact = each.exact(from[i]);
      const auto nearest = static_cast<float>(exact);
      if (std::isnan(exact) || std::isinf(nearest) || std::isinf(values[i]) || exact == 0) {
        const bool same = std::isnan(exact) ? std::isnan(values[i]) : values[i] == nearest;
        ASSERT_TRUE(same && (std::isnan(exact) || std::signbit(values[i]) == std::signbit(exact)))
            << each.name << " of " << from[i] << " is " << values[i];
        continue;
      }
      const double unit = std::ldexp(1.0, std::max(std::ilogb(nearest), -126) - 23);
      worst = std::max(worst, std::fabs(values[i] - exact) / unit);
    }
    EXPECT_LE(worst, 4) << each.name;
  }
}

TEST_F(PointwiseTest, ErfAndTanhNeverExceedOneAndReachIt) {
  const LocalTensor x = every_so_many_floats(997);
  for (const Function& function : {Function([](const LocalTensor& each) { return erf(each); }),
                                   Function([](const LocalTensor& each) { return tanh(each); })}) {
    EXPECT_FALSE(any(gt(abs(function(x)), 1)).item() != 0);
    EXPECT_EQ(function(tensor({-100, -10, 10, 100})).to_vector(), (Values{-1, -1, 1, 1}));
  }
}

TEST_F(PointwiseTest, TheGradientOfGeluIsThatOfF64) {
  const LocalTensor x = every_so_many_floats(65521);
  const LocalTensor found = gelu_backward(full({}, 1), x);
  const LocalTensor exact = gelu_backward(full({}, 1, {DType::f64}), x.to(DType::f64));
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const double got = found.data_as<const float>()[i], right = exact.data_as<const double>()[i];
    ASSERT_EQ(std::isnan(got), std::isnan(right)) << x.data_as<const float>()[i];
    if (std::isnan(right)) continue;
    ASSERT_NEAR(got, right, 4e-7) << x.data_as<const float>()[i];
  }
}

TEST_F(PointwiseTest, Bfloat16IsWhatF32IsRounded) {
  const LocalTensor x = every_so_many_floats(65521).to(DType::bf16);
  for (const Exact& each : kExact) {
    const LocalTensor narrow = each.function(x);
    EXPECT_TRUE(same_bits(narrow, each.function(x.to(DType::f32)).to(DType::bf16))) << each.name;
  }
}

// Dense bf16 of two operands is taken a word of two elements at a time.
TEST_F(PointwiseTest, Bfloat16OfTwoOperandsIsWhatF32IsRounded) {
  using Two = LocalTensor (*)(const LocalTensor&, const LocalTensor&);
  const Two functions[] = {
      [](const LocalTensor& a, const LocalTensor& b) { return add(a, b); },
      [](const LocalTensor& a, const LocalTensor& b) { return sub(a, b); },
      [](const LocalTensor& a, const LocalTensor& b) { return mul(a, b); },
      [](const LocalTensor& a, const LocalTensor& b) { return tanh_backward(a, b); },
      [](const LocalTensor& a, const LocalTensor& b) { return sigmoid_backward(a, b); }};
  // Every bf16 there is, beside each of some others; with a tail, from an odd place in memory on.
  const LocalTensor every = every_so_many_floats(65536).to(DType::bf16);
  ASSERT_GE(every.numel(), 65536);
  for (const std::int64_t shift : {1, 128, 8000, 16000, 32641}) {
    const LocalTensor a = every.narrow(0, 1, every.numel() - 4),
                      b = roll(every, {shift}, {0}).narrow(0, 3, a.numel());
    for (const Two& function : functions) {
      const LocalTensor narrow = function(a, b);
      EXPECT_TRUE(same_bits(narrow, function(a.to(DType::f32), b.to(DType::f32)).to(DType::bf16)))
          << shift;
    }
  }
}

TEST_F(PointwiseTest, Bfloat16OfOneOperandOrWithANumberIsWhatF32IsRounded) {
  // A factor or divisor stays a float, others are rounded first: 0.375 and 3 are numbers of both.
  const Function functions[] = {[](const LocalTensor& x) { return neg(x); },
                                [](const LocalTensor& x) { return abs(x); },
                                [](const LocalTensor& x) { return square(x); },
                                [](const LocalTensor& x) { return sqrt(x); },
                                [](const LocalTensor& x) { return reciprocal(x); },
                                [](const LocalTensor& x) { return relu(x); },
                                [](const LocalTensor& x) { return leaky_relu(x, 0.1); },
                                [](const LocalTensor& x) { return hardtanh(x, -0.3, 0.7); },
                                [](const LocalTensor& x) { return clamp(x, -0.375, 3); },
                                [](const LocalTensor& x) { return mul(x, 0.1); },
                                [](const LocalTensor& x) { return div(x, 0.1); },
                                [](const LocalTensor& x) { return div(x, 16777217); },
                                [](const LocalTensor& x) { return add(x, 0.375); },
                                [](const LocalTensor& x) { return sub(3, x); },
                                [](const LocalTensor& x) { return maximum(x, full({}, 0.375)); }};
  const LocalTensor every = every_so_many_floats(65536).to(DType::bf16);
  // Also with a tail, from an odd place in memory on, and with gaps.
  const LocalTensor some[] = {every, every.narrow(0, 1, every.numel() - 4),
                              every.slice(0, 3, every.numel(), 2)};
  for (const LocalTensor& x : some) {
    int number = 0;
    for (const Function& function : functions) {
      EXPECT_TRUE(same_bits(function(x), function(x.to(DType::f32)).to(DType::bf16))) << number;
      ++number;
    }
  }
}

TEST_F(PointwiseTest, Bfloat16InPlaceOrWithARowIsWhatF32IsRounded) {
  const LocalTensor x =
      every_so_many_floats(65536).to(DType::bf16).narrow(0, 0, 65530).view({-1, 10});
  const LocalTensor row = x[6553 / 2], wide = x.to(DType::f32), wide_row = row.to(DType::f32);
  EXPECT_TRUE(same_bits(add(x, row), add(wide, wide_row).to(DType::bf16)));
  EXPECT_TRUE(same_bits(mul(row, x.transpose(0, 1).contiguous().transpose(0, 1)),
                        mul(wide_row, wide).to(DType::bf16)));
  const LocalTensor scaled = x.clone(), added = x.clone();
  mul_(scaled, 0.1);
  EXPECT_TRUE(same_bits(scaled, mul(wide, 0.1).to(DType::bf16)));
  add_(added, row);
  EXPECT_TRUE(same_bits(added, add(wide, wide_row).to(DType::bf16)));
  // Into f32 nothing is rounded to bf16 but the result.
  const LocalTensor target = zeros({3});
  add_(target, tensor({1, 2, 3}, {DType::bf16}));
  EXPECT_EQ(target.to_vector(), (Values{1, 2, 3}));
}

// Such rows are written down often, and mapped many at once.
TEST_F(PointwiseTest, ARowThatAllShareIsAsItsCopies) {
  for (const std::int64_t length : {2, 7, 16, 33, 100, 256, 511, 512, 513}) {
    for (const std::int64_t rows : {2, 5, 130, 700}) {
      const LocalTensor numbers = randn({rows, length}, {.seed = 1});
      const LocalTensor row = randn({length}, {.seed = 2}), third = randn({length}, {.seed = 3});
      const auto copied = [&](const LocalTensor& a) {
        return a.expand({rows, length}).contiguous();
      };
      for (const DType dtype : {DType::f32, DType::bf16, DType::f64, DType::i64}) {
        const LocalTensor a = (numbers * 9).to(dtype), b = (row * 9).to(dtype);
        SCOPED_TRACE(testing::Message()
                     << rows << " rows of " << length << " " << dtype_name(dtype));
        for (const int threads : {1, 4}) {
          set_num_threads(threads);
          EXPECT_TRUE(same_bits(add(a, b), add(a, copied(b))));
          EXPECT_TRUE(same_bits(sub(b, a), sub(copied(b), a)));
          EXPECT_TRUE(same_bits(lt(a, b), lt(a, copied(b))));
          LocalTensor changed = a.clone();
          mul_(changed, b);
          EXPECT_TRUE(same_bits(changed, mul(a, copied(b))));
        }
      }
      // Of different dtypes, and of three operands of which two are shared.
      EXPECT_TRUE(
          same_bits(add(numbers.to(DType::bf16), row), add(numbers.to(DType::bf16), copied(row))));
      EXPECT_TRUE(same_bits(where(gt(numbers, 0), row, third),
                            where(gt(numbers, 0), copied(row), copied(third))));
      // Shared rows whose elements have different sizes.
      const LocalTensor mask = gt(third, 0), half = third.to(DType::bf16);
      EXPECT_TRUE(same_bits(where(mask, numbers, row), where(copied(mask), numbers, copied(row))));
      EXPECT_TRUE(same_bits(clamp(numbers, half, row), clamp(numbers, copied(half), copied(row))));
    }
  }
}

TEST_F(PointwiseTest, WhatOverlapsTheTargetIsReadBefore) {
  const LocalTensor x = arange(6);
  add_(x.slice(0, 1, 6), x.slice(0, 0, 5));
  EXPECT_EQ(x.to_vector(), (Values{0, 1, 3, 5, 7, 9}));
  const LocalTensor square_matrix = arange(4).view({2, 2});
  add_(square_matrix, square_matrix.transpose(0, 1));
  EXPECT_EQ(square_matrix.to_vector(), (Values{0, 3, 3, 6}));
  mul_(x, x);
  EXPECT_EQ(x.to_vector(), (Values{0, 1, 9, 25, 49, 81}));
}

TEST_F(PointwiseTest, InPlaceWritesAreCountedAndKeepTheView) {
  const LocalTensor x = zeros({2, 3});
  const std::uint32_t before = x.storage()->version();
  add_(x.transpose(0, 1), tensor({1., 2.}));
  EXPECT_EQ(x.to_vector(), (Values{1, 1, 1, 2, 2, 2}));
  EXPECT_GT(x.storage()->version(), before);
}

TEST_F(PointwiseTest, WhatCannotBeWrittenIsNamed) {
  EXPECT_EQ(summary_of([] { add_(ones({1}).expand({3}), 1); }),
            "add_ would write to an expanded tensor of shape [3]");
  EXPECT_EQ(summary_of([] {
              add_(ones({2}), ones({3, 2}));
            }),
            "add_ gives shape [3, 2], which is not that of the tensor, [2]");
  EXPECT_EQ(summary_of([] {
              div_(tensor({1, 2}), 2);
            }),
            "div_ gives float32, which a int64 tensor cannot hold");
  EXPECT_EQ(summary_of([] { gelu(tensor({1, 2})); }), "gelu does not take int64 tensors");
  EXPECT_EQ(summary_of([] { add(1, 2); }), "add of numbers only");
  EXPECT_EQ(summary_of([] { where(ones({1}), 1, 2); }), "where with a float32 condition");
  EXPECT_EQ(summary_of([] { clamp(ones({1}), std::nullopt, std::nullopt); }),
            "clamp without a bound");
  EXPECT_EQ(summary_of([] { pow(tensor({2}), -1); }), "pow of integers to the power -1");
}

TEST_F(PointwiseTest, AnIntegerDivisionByZeroAnywhereIsAnError) {
  set_num_threads(2);
  const LocalTensor divisors = full({100000}, 3, {DType::i64});
  EXPECT_EQ(remainder(full({100000}, -4, {DType::i64}), divisors)[99999].item(), 2);
  divisors[99999].fill_(0);
  EXPECT_EQ(summary_of([&] { floor_divide(divisors, divisors); }), "integer division by zero");
  EXPECT_EQ(summary_of([&] { remainder(divisors, 0); }), "integer division by zero");
}

TEST(PlacesTest, AWrongPositionOfAMeanNamesTheCallersTensor) {
  const LocalTensor outside = full({2}, 6, {DType::i64});
  for (const auto& [dtype, name] :
       {std::pair{DType::bf16, "bf16[6]"}, std::pair{DType::i32, "i32[6]"}}) {
    const LocalTensor a = ones({6}, {dtype}), source = ones({2}, {dtype});
    const auto words_of = [&](ScatterReduce reduce) {
      return summary_of([&] { scatter_reduce(a, 0, outside, source, reduce); });
    };
    EXPECT_NE(words_of(ScatterReduce::mean).find(name), std::string::npos)
        << words_of(ScatterReduce::mean);
    for (const ScatterReduce reduce : {ScatterReduce::prod, ScatterReduce::amax})
      EXPECT_EQ(words_of(reduce), words_of(ScatterReduce::mean));
  }
  const LocalTensor mean =
      scatter_reduce(ones({}), 0, zeros({}, {DType::i64}), full({}, 4), ScatterReduce::mean);
  EXPECT_EQ(mean.shape(), Shape{});
  EXPECT_EQ(mean.to_vector(), (Values{2.5}));
}

}  // namespace
}  // namespace dtrun::tensors
