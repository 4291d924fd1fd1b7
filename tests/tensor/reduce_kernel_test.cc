#include "dtrun/tensor/reduce_kernel.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "dtrun/base/error.h"
#include "dtrun/tensor/literal.h"
#include "dtrun/tensor/ops.h"
#include "tensor/all_dtypes.h"

namespace dtrun::tensors {
namespace {

using Values = std::vector<double>;
constexpr CombineOp kAllOps[] = {CombineOp::sum, CombineOp::product, CombineOp::min,
                                 CombineOp::max, CombineOp::band,    CombineOp::bor,
                                 CombineOp::bxor};
double plain(CombineOp op, double a, double b) {
  const std::int64_t x = static_cast<std::int64_t>(a);
  const std::int64_t y = static_cast<std::int64_t>(b);
  switch (op) {
    case CombineOp::sum:
      return a + b;
    case CombineOp::product:
      return a * b;
    case CombineOp::min:
      return std::min(a, b);
    case CombineOp::max:
      return std::max(a, b);
    case CombineOp::band:
      return static_cast<double>(x & y);
    case CombineOp::bor:
      return static_cast<double>(x | y);
    case CombineOp::bxor:
      return static_cast<double>(x ^ y);
  }
  return 0;
}

Values combined(CombineOp op, const LocalTensor& a, const LocalTensor& b) {
  const LocalTensor accumulator = a.clone();
  combine(op, a.dtype(), accumulator.data(), b.data(), a.numel());
  return accumulator.to_vector();
}

Values all_combined(CombineOp op, const std::vector<LocalTensor>& inputs) {
  std::vector<const void*> pointers;
  for (const LocalTensor& input : inputs) pointers.push_back(input.data());
  const LocalTensor output = empty(inputs[0].shape(), {inputs[0].dtype()});
  combine_all(op, output.dtype(), output.data(), pointers.data(), static_cast<int>(inputs.size()),
              output.numel());
  return output.to_vector();
}

TEST(ReduceKernelTest, EveryOperationOnEveryDTypeIsThePlainOne) {
  const LocalTensor a = arange(1027).to(DType::i64) * 7;
  for (const CombineOp op : kAllOps) {
    for (const DType dtype : kAllDTypes) {
      if (!combine_supports(op, dtype)) continue;
      // Small whole numbers, so that every dtype holds every result.
      const LocalTensor x = (a - div(a, 11).to(DType::i64) * 11).to(dtype);
      const LocalTensor y = (a - div(a, 5).to(DType::i64) * 5).to(dtype);
      const Values xs = x.to_vector();
      const Values ys = y.to_vector();
      Values expected;
      for (std::size_t i = 0; i < xs.size(); ++i) {
        const double value = plain(op, xs[i], ys[i]);
        expected.push_back(dtype == DType::boolean ? std::min(value, 1.0) : value);
      }
      EXPECT_EQ(combined(op, x, y), expected) << combine_op_name(op) << " " << dtype_name(dtype);
      EXPECT_EQ(all_combined(op, {x, y}), expected);
      EXPECT_EQ(all_combined(op, {x}), xs);
    }
  }
}

TEST(ReduceKernelTest, BoolIsAnyForSumAndMaxAndAllForProductAndMin) {
  const LocalTensor a = tensor({false, false, true, true});
  const LocalTensor b = tensor({false, true, false, true});
  EXPECT_EQ(combined(CombineOp::sum, a, b), (Values{0, 1, 1, 1}));
  EXPECT_EQ(combined(CombineOp::max, a, b), (Values{0, 1, 1, 1}));
  EXPECT_EQ(combined(CombineOp::product, a, b), (Values{0, 0, 0, 1}));
  EXPECT_EQ(combined(CombineOp::min, a, b), (Values{0, 0, 0, 1}));
  EXPECT_EQ(combined(CombineOp::bxor, a, b), (Values{0, 1, 1, 0}));
}

TEST(ReduceKernelTest, NanWinsInMinAndMaxFromEitherSide) {
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
    const LocalTensor a = tensor({NAN, 1., NAN}, {dtype});
    const LocalTensor b = tensor({1., NAN, NAN}, {dtype});
    for (const CombineOp op : {CombineOp::min, CombineOp::max}) {
      for (const double value : combined(op, a, b)) EXPECT_TRUE(std::isnan(value));
      for (const double value : all_combined(op, {a, b, ones({3}, {dtype})})) {
        EXPECT_TRUE(std::isnan(value));
      }
    }
  }
}

TEST(ReduceKernelTest, IntegersWrap) {
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  const LocalTensor a = tensor({kMax, kMax});
  const LocalTensor sum_of_two = a.clone();
  combine(CombineOp::sum, DType::i64, sum_of_two.data(), a.data(), 2);
  EXPECT_EQ(sum_of_two.to_vector_i64(), (std::vector<std::int64_t>{-2, -2}));
  combine(CombineOp::product, DType::i64, a.data(), a.data(), 2);
  EXPECT_EQ(a.to_vector_i64(), (std::vector<std::int64_t>{1, 1}));
  const LocalTensor bytes = full({3}, 200, {DType::u8});
  EXPECT_EQ(combined(CombineOp::sum, bytes, bytes), (Values{144, 144, 144}));
}

TEST(ReduceKernelTest, HalfTypesRoundOnceOverAllInputs) {
  // 2048 + 1 is no f16 and rounds back to 2048; 2048 + 1 + 1 is one.
  const LocalTensor large = full({600}, 2048, {DType::f16});
  const LocalTensor one = ones({600}, {DType::f16});
  EXPECT_EQ(all_combined(CombineOp::sum, {large, one, one}), Values(600, 2050));
  EXPECT_EQ(combined(CombineOp::sum, large, one), Values(600, 2048));
  const LocalTensor b_large = full({600}, 256, {DType::bf16});
  const LocalTensor b_one = ones({600}, {DType::bf16});
  EXPECT_EQ(all_combined(CombineOp::sum, {b_large, b_one, b_one}), Values(600, 258));
}

TEST(ReduceKernelTest, TheOutputMayBeAnyOfTheInputs) {
  for (std::size_t k = 0; k < 3; ++k) {
    const LocalTensor inputs[] = {arange(2500), arange(2500), arange(2500)};
    const void* pointers[] = {inputs[0].data(), inputs[1].data(), inputs[2].data()};
    combine_all(CombineOp::sum, DType::i64, inputs[k].data(), pointers, 3, 2500);
    EXPECT_TRUE(equal(inputs[k], arange(2500) * 3));
  }
}

TEST(ReduceKernelTest, DivideTruncatesIntegersAndRoundsHalves) {
  const auto divided = [](const LocalTensor& values, std::int64_t divisor) {
    const LocalTensor copy = values.clone();
    divide(copy.dtype(), copy.data(), copy.numel(), divisor);
    return copy.to_vector();
  };
  EXPECT_EQ(divided(tensor({-7, 7, 6}), 2), (Values{-3, 3, 3}));
  EXPECT_EQ(divided(tensor({7., 1.}), 4), (Values{1.75, 0.25}));
  EXPECT_EQ(divided(tensor({255, 3}, {DType::u8}), 2), (Values{127, 1}));
  EXPECT_EQ(divided(tensor({1.}, {DType::f16}), 3), Values{0.333251953125});
  EXPECT_EQ(divided(tensor({1.}, {DType::bf16}), 3), Values{0.333984375});
  EXPECT_THROW(divided(tensor({true}), 2), base::Error);
}

TEST(ReduceKernelTest, BitsOfFloatsAreRefused) {
  float value = 1;
  const void* inputs[] = {&value};
  EXPECT_THROW(combine(CombineOp::band, DType::f32, &value, &value, 1), base::Error);
  EXPECT_THROW(combine_all(CombineOp::bxor, DType::f32, &value, inputs, 1, 1), base::Error);
}

}  // namespace
}  // namespace dtrun::tensors
