// What the goldens do not show: errors, devices, exactness and order. Values: golden_ops_test.cc.
#include "dtrun/tensor/ops.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <thread>

#include "blas.h"
#include "dtrun/base/error.h"
#include "dtrun/tensor/host_memory.h"
#include "dtrun/tensor/literal.h"
#include "dtrun/tensor/ops/index.h"
#include "dtrun/tensor/threads.h"
#include "kernels/bf16_product.h"
#include "onednn.h"
#include "openblas.h"

namespace dtrun::tensors {
namespace {

using base::Error;
using base::ErrorCode;
using Values = std::vector<double>;

/// Says that it is on a device; nobody may touch its elements.
LocalTensor device_tensor() {
  const Device device{DeviceType::cuda, 0};
  static float element = 0;
  return LocalTensor(Storage::wrap(&element, sizeof element, device, {}), DType::f32, {1, 1},
                     {1, 1});
}

std::string summary_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_TRUE(error.code() == ErrorCode::kInvalidArgument ||
                error.code() == ErrorCode::kUnavailable);
    return error.summary();
  }
  return "no error";
}

TEST(OpsTest, IntegersHaveNoDecimals) {
  EXPECT_EQ(round(tensor_from(std::vector<double>{1.25, -17.5}, {2}, DType::f64), -1).to_vector(),
            (std::vector<double>{0, -20}));
  EXPECT_THROW(round(arange(3), 1), base::Error);
}

// 10 to that power is infinite, and 0 times it no number. std::abs of the least int is undefined:
// UBSan says so.
TEST(OpsTest, DecimalsMayBeTheLeastInteger) {
  for (const int decimals : {-400, std::numeric_limits<int>::min()})
    EXPECT_TRUE(std::isnan(round(ones({1}), decimals).to_vector()[0])) << decimals;
}

TEST(OpsTest, OperandsOnTwoDevicesAreNamed) {
  const LocalTensor remote = device_tensor();
  const LocalTensor here = ones({1, 1});
  EXPECT_EQ(summary_of([&] { sub(here, remote); }), "sub of tensors on cpu and cuda:0");
  EXPECT_EQ(summary_of([&] { matmul(remote, here); }), "matmul of tensors on cuda:0 and cpu");
  EXPECT_EQ(summary_of([&] { equal(remote, here); }), "equal of tensors on cuda:0 and cpu");
}

TEST(OpsTest, BadShapesNameBothSides) {
  EXPECT_EQ(summary_of([] { ones({2}) + ones({3}); }), "shapes [2] and [3] do not broadcast");
  EXPECT_EQ(summary_of([] {
              matmul(ones({2, 3}), ones({2, 3}));
            }),
            "matmul of float32 [2, 3] and float32 [2, 3]");
  EXPECT_EQ(summary_of([] { matmul(ones({}), ones({1})); }),
            "matmul of float32 [] and float32 [1]");
  EXPECT_EQ(summary_of([] {
              matmul(ones({2, 3, 3}), ones({3, 3, 3}));
            }),
            "shapes [2] and [3] do not broadcast");
}

TEST(OpsTest, MatmulRefusesDTypesThatDifferAndBool) {
  EXPECT_EQ(summary_of([] { matmul(ones({1}), ones({1}, {DType::f64})); }),
            "matmul of float32 [1] and float64 [1]");
  EXPECT_EQ(summary_of([] { matmul(tensor({true}), tensor({true})); }),
            "matmul of bool [1] and bool [1]");
}

TEST(OpsTest, MatmulRefusesMoreColumnsThanBlasCounts) {
  const LocalTensor wide = ones({1, 1}).expand({1, std::int64_t{1} << 31});
  EXPECT_EQ(summary_of([&] {
              matmul(ones({1, 1}), wide);
            }),
            "matmul of float32 [1, 1] and float32 [1, 2147483648]");
  EXPECT_EQ(summary_of([&] { matmul(wide, wide.transpose(0, 1)); }),
            "matmul of float32 [1, 2147483648] and float32 [2147483648, 1]");
}

TEST(OpsTest, WithoutOpenBlasTheErrorSaysWhatToInstall) {
  EXPECT_EQ(summary_of([] { open_blas({"libnone-such.so"}); }),
            "cannot multiply matrices: no OpenBLAS");
  EXPECT_EQ(summary_of([] { open_blas({"libc.so.6"}); }), "cannot multiply matrices: no OpenBLAS");
}

TEST(OpsTest, MatmulOfARepeatedRowIsRight) {
  const LocalTensor repeated = arange(3).to(DType::f32).expand({4, 3});
  EXPECT_EQ(matmul(repeated, ones({3, 2})).to_vector(), Values(8, 3));
  EXPECT_EQ(matmul(ones({2, 3}), repeated.transpose(0, 1)).to_vector(), Values(8, 3));
}

TEST(OpsTest, ManyRowsTimesTransposedWeightsAreTheProduct) {
  const auto small = [](const Shape& shape) -> LocalTensor {
    return remainder(arange(numel(shape)), 7).to(DType::f32).view(shape);
  };
  // Whole numbers, so that no order of summation rounds.
  const LocalTensor x = small({600, 70}), weights = small({90, 70});
  const LocalTensor bias = small({90});
  const LocalTensor product = matmul(x, weights.transpose(0, 1));
  EXPECT_EQ(product.to_vector(), matmul(x, weights.transpose(0, 1).contiguous()).to_vector());
  double sum = 0;
  for (int k = 0; k < 70; ++k) sum += (599 * 70 + k) % 7 * ((89 * 70 + k) % 7);
  EXPECT_EQ(product.to_vector().back(), sum);
  EXPECT_EQ(add_matmul(bias, x, weights.transpose(0, 1)).to_vector(),
            add(product, bias).to_vector());
}

TEST(OpsTest, BoolsDoNotSubtractAndNumbersMustFit) {
  EXPECT_EQ(summary_of([] { tensor({true}) - tensor({true}); }), "sub does not take bool tensors");
  EXPECT_EQ(summary_of([] { tensor({true}) - 1; }), "sub does not take bool tensors");
  EXPECT_EQ(summary_of([] { tensor({1}, {DType::u8}) + 300; }), "add of a uint8 tensor and 300");
  EXPECT_EQ(summary_of([] { tensor({1}, {DType::i32}) * 4000000000; }),
            "mul of a int32 tensor and 4000000000");
  EXPECT_EQ(summary_of([] { tensor({1}) - true; }), "sub does not take bool tensors");
  EXPECT_EQ(summary_of([] { tensor({1}) + ~std::uint64_t{0}; }),
            "18446744073709551615 is beyond int64");
}

TEST(OpsTest, TheKindOfANumberDecidesTheDTypeAndItsValueDoesNot) {
  EXPECT_EQ((tensor({1, 2}) * 2).dtype(), DType::i64);
  for (const double number : {1.0, 0.5, 0.0, 1e300}) {
    EXPECT_EQ((arange(4) * number).dtype(), DType::f32) << number;
    EXPECT_EQ((number - arange(4)).dtype(), DType::f32) << number;
  }
  EXPECT_EQ((arange(4) * 1.0f).dtype(), DType::f32);
  EXPECT_EQ((tensor({1}, {DType::u8}) + std::size_t{3}).dtype(), DType::u8);
  EXPECT_EQ((tensor({true}) + true).dtype(), DType::boolean);
  EXPECT_EQ((tensor({1, 2}) + NAN).dtype(), DType::f32);
  EXPECT_EQ((tensor({true}) * 2).dtype(), DType::i64);
  EXPECT_EQ((tensor({1, 2}) / 2).to_vector(), (Values{0.5, 1}));
  EXPECT_EQ((1 - tensor({1, 2})).to_vector(), (Values{0, -1}));
}

TEST(OpsTest, IntegersBeyondTheDoublesAreExact) {
  constexpr std::int64_t kOdd = (std::int64_t{1} << 53) + 1;
  EXPECT_EQ((tensor({1}) * kOdd).to_vector_i64(), std::vector<std::int64_t>{kOdd});
  EXPECT_EQ(full({1}, kOdd, {DType::i64}).to_vector_i64(), std::vector<std::int64_t>{kOdd});
}

TEST(OpsTest, ThreadsMayReadOneTensorTogether) {
  const LocalTensor shared = randn({64, 64}, {.seed = 3});
  const LocalTensor expected = matmul(shared, shared.transpose(0, 1)) + sum(shared, {0});
  std::vector<LocalTensor> results(4);
  std::vector<std::thread> ranks;
  for (LocalTensor& result : results) {
    ranks.emplace_back(
        [&result, shared] { result = matmul(shared, shared.transpose(0, 1)) + sum(shared, {0}); });
  }
  for (std::thread& rank : ranks) rank.join();
  for (const LocalTensor& result : results) EXPECT_TRUE(equal(result, expected));
}

TEST(OpsTest, PickingHasTheSameBitsForEveryNumberOfThreads) {
  const int before = num_threads();
  const LocalTensor rows = randn({4000, 33}, {1}), table = randn({501, 33}, {2});
  const LocalTensor list = remainder(arange(4000) * 7919, 501);
  const LocalTensor index = list.unsqueeze(1).expand({4000, 33}).contiguous();
  const auto all = [&] {
    const Sorted ordered = sort(rows, 0);
    return std::vector<LocalTensor>{index_add(table, 0, list, rows, 0.5),
                                    index_select(table, 0, list),
                                    scatter_add(table, 0, index, rows),
                                    scatter(table, 0, index, rows),
                                    gather(table, 0, index),
                                    ordered.indices,
                                    ordered.values,
                                    reverse_cumsum(rows, 0),
                                    triu(rows, 3)};
  };
  set_num_threads(1);
  const std::vector<LocalTensor> expected = all();
  for (const int threads : {2, 4}) {
    set_num_threads(threads);
    const std::vector<LocalTensor> found = all();
    for (std::size_t i = 0; i < found.size(); ++i) {
      EXPECT_TRUE(equal(found[i], expected[i]))
          << "operator " << i << ", " << threads << " threads";
    }
  }
  set_num_threads(before);
}

TEST(OpsTest, SlicesOfEverySizeArePickedFromAnyAddress) {
  const LocalTensor list = remainder(arange(70) * 7919, 37);
  for (std::int64_t bytes = 1; bytes <= 600; bytes += bytes < 140 ? 1 : 23) {
    const LocalTensor numbers = remainder(arange(37 * bytes + 1) * 31, 251).to(DType::u8);
    for (const std::int64_t first : {0, 1}) {
      const LocalTensor a = numbers.narrow(0, first, 37 * bytes).view({37, bytes});
      ASSERT_TRUE(
          equal(index_select(a, 0, list), gather(a, 0, list.unsqueeze(1).expand({70, bytes}))))
          << bytes << " bytes from " << first << " on";
    }
  }
}

TEST(OpsTest, SlicesOfHalvesAreSummedABlockAtATime) {
  // Few positions of many, and more; slices that end within a block of 1,024 and in the next ones.
  for (const DType dtype : {DType::bf16, DType::f16}) {
    for (const std::int64_t count : {3, 90}) {
      for (const std::int64_t after : {7, 8, 900, 1024, 1029, 1500, 2500}) {
        SCOPED_TRACE(testing::Message()
                     << dtype_name(dtype) << ", " << count << " positions, " << after);
        const LocalTensor a = randn({2, 64, after}, {.seed = 1}).to(dtype);
        const LocalTensor parts = randn({2, count, after}, {.seed = 2}).to(dtype);
        const LocalTensor list = remainder(arange(count), 2) * 41;
        const LocalTensor exact = a.to(DType::f32), sources = parts.to(DType::f32);
        EXPECT_TRUE(equal(index_add(a, 1, list, parts, 0.3),
                          index_add(exact, 1, list, sources, 0.3).to(dtype)));
      }
    }
  }
}

TEST(OpsTest, HalvesThatPositionsGetAreSummedInF32AndRoundedOnce) {
  // Few positions of many, as many as there are, and more; most of them several times.
  for (const DType dtype : {DType::bf16, DType::f16}) {
    for (const std::int64_t count : {0, 1, 7, 100, 2000, 5000}) {
      SCOPED_TRACE(testing::Message() << dtype_name(dtype) << ", " << count << " positions");
      const LocalTensor a = randn({3, 2000}, {.seed = 1}).to(dtype);
      const LocalTensor parts = randn({3, count}, {.seed = 2}).to(dtype);
      const LocalTensor list = remainder(arange(count) * 7919, 13) * 100;
      const LocalTensor index = list.expand({3, count});
      const LocalTensor exact = a.to(DType::f32), sources = parts.to(DType::f32);
      EXPECT_TRUE(
          equal(scatter_add(a, 1, index, parts), scatter_add(exact, 1, index, sources).to(dtype)));
      EXPECT_TRUE(
          equal(index_add(a, 1, list, parts), index_add(exact, 1, list, sources).to(dtype)));
      const LocalTensor turned = a.transpose(0, 1);
      EXPECT_TRUE(equal(index_add(turned, 0, list, parts.transpose(0, 1)),
                        index_add(a, 1, list, parts).transpose(0, 1)));
      EXPECT_TRUE(equal(scatter_add(turned, 0, index.transpose(0, 1), parts.transpose(0, 1)),
                        scatter_add(a, 1, index, parts).transpose(0, 1)));
    }
  }
}

TEST(OpsTest, HalfProductsAreSummedInF32AndRoundedOnce) {
  // Sums that bf16 cannot hold on the way, and edges of every block.
  for (const DType dtype : {DType::bf16, DType::f16}) {
    for (const Shape& sizes :
         {Shape{1, 1, 1}, Shape{3, 5, 2}, Shape{33, 1070, 31}, Shape{4, 600, 300},
          Shape{150, 64, 530}, Shape{17, 33, 1}, Shape{1, 90, 45}}) {
      const LocalTensor a = remainder(arange(sizes[0] * sizes[1]) * 7, 5).to(dtype);
      const LocalTensor b = remainder(arange(sizes[1] * sizes[2]) * 11, 7).to(dtype);
      const LocalTensor left = a.view({sizes[0], sizes[1]}), right = b.view({sizes[1], sizes[2]});
      const LocalTensor turned_left = left.transpose(0, 1).contiguous().transpose(0, 1);
      const LocalTensor turned_right = right.transpose(0, 1).contiguous().transpose(0, 1);
      const LocalTensor exact = matmul(left.to(DType::f64), right.to(DType::f64));
      for (const LocalTensor& x : {left, turned_left}) {
        for (const LocalTensor& y : {right, turned_right}) {
          EXPECT_TRUE(equal(matmul(x, y), exact.to(dtype)))
              << dtype_name(dtype) << " " << shape_to_string(sizes);
        }
      }
    }
  }
}

TEST(OpsTest, Bf16ProductsAreRightInChunksOfKAndInWholeBlocks) {
  // Of small whole numbers, whose sums f32 holds: more than one chunk of k, several blocks, left
  // sides that are read as they lie and such that are not.
  for (const Shape& sizes : {Shape{64, 64, 96}, Shape{320, 1024, 288}, Shape{100, 1100, 70},
                             Shape{416, 2080, 450}, Shape{33, 3000, 40}}) {
    const LocalTensor left =
        remainder(arange(sizes[0] * sizes[1]) * 7, 5).view({sizes[0], sizes[1]});
    const LocalTensor right =
        remainder(arange(sizes[1] * sizes[2]) * 11, 7).view({sizes[1], sizes[2]});
    const LocalTensor exact = matmul(left.to(DType::f64), right.to(DType::f64)).to(DType::bf16);
    const LocalTensor a = left.to(DType::bf16), b = right.to(DType::bf16);
    const LocalTensor turned = b.transpose(0, 1).contiguous().transpose(0, 1);
    EXPECT_TRUE(equal(matmul(a, b), exact)) << shape_to_string(sizes);
    EXPECT_TRUE(equal(matmul(a, turned), exact)) << shape_to_string(sizes);
    // What CPUs without products of bf16 do.
    const LocalTensor blocks = empty(exact.shape(), {DType::bf16});
    multiply_bf16_in_blocks(matrix_of(a), matrix_of(turned), static_cast<BFloat16*>(blocks.data()),
                            {});
    EXPECT_TRUE(equal(blocks, exact)) << shape_to_string(sizes);
  }
}

TEST(OpsTest, VectorsSumWhatIsPackedForTiles) {
  if (!has_bf16_vectors()) GTEST_SKIP() << "the processor has no products of bf16";
  constexpr std::int64_t kSteps = 3, kSide = 32;
  const LocalTensor left =
      remainder(arange(kSide * kSteps * kSide) * 7, 5).view({kSide, kSteps, kSide});
  const LocalTensor right =
      remainder(arange(kSide * kSteps * kSide) * 11, 7).view({kSteps * kSide, kSide});
  const LocalTensor exact =
      matmul(left.view({kSide, kSteps * kSide}).to(DType::f32), right.to(DType::f32));
  // Steps of 32 rows; steps of two tiles of 16 pairs of rows and 16 columns.
  const LocalTensor rows = left.transpose(0, 1).contiguous().to(DType::bf16);
  const LocalTensor pairs =
      right.view({kSteps, 16, 2, 2, 16}).permute({0, 3, 1, 4, 2}).contiguous().to(DType::bf16);
  const LocalTensor sums = empty({kSide, kSide});
  multiply_steps({static_cast<const std::byte*>(rows.data()), 2048, 64,
                  static_cast<const std::byte*>(pairs.data()), kSteps,
                  static_cast<float*>(sums.data())});
  EXPECT_TRUE(equal(sums, exact));
  // As the left lies where it is not packed.
  const LocalTensor lying = left.contiguous().to(DType::bf16);
  multiply_steps({static_cast<const std::byte*>(lying.data()), 64, kSteps * 64,
                  static_cast<const std::byte*>(pairs.data()), kSteps,
                  static_cast<float*>(sums.data())});
  EXPECT_TRUE(equal(sums, exact));
}

/// beta * sum + alpha * a b in f64.
LocalTensor exact_sum(const LocalTensor& sum, const LocalTensor& a, const LocalTensor& b,
                      ProductSum factors) {
  return add(mul(sum.to(DType::f64), factors.beta),
             mul(matmul(a.to(DType::f64), b.to(DType::f64)), factors.alpha));
}

TEST(OpsTest, WhatIsAddedToAProductMayLieInAnyWay) {
  const ProductSum factors = {.beta = 3, .alpha = -2};
  for (const DType dtype :
       {DType::f32, DType::f64, DType::bf16, DType::f16, DType::i64, DType::u8}) {
    for (const Shape& sizes : {Shape{3, 5, 2}, Shape{70, 40, 90}, Shape{300, 64, 200},
                               Shape{20, 64, 700}, Shape{40, 1100, 33}}) {
      const auto numbers = [&](std::int64_t rows, std::int64_t columns, int step) {
        return remainder(arange(rows * columns) * step, 3).to(dtype).view({rows, columns});
      };
      const LocalTensor a = numbers(sizes[0], sizes[1], 7), b = numbers(sizes[1], sizes[2], 11);
      const LocalTensor whole = numbers(sizes[0], sizes[2], 5);
      const LocalTensor turned = whole.transpose(0, 1).contiguous().transpose(0, 1);
      for (const LocalTensor& sum :
           {whole, turned, whole[0], whole.narrow(1, 1, 1), whole.narrow(0, 1, 1), whole[0][1]}) {
        const LocalTensor exact = exact_sum(sum, a, b, factors);
        // Integers wrap.
        const LocalTensor expected =
            dtype == DType::u8 ? exact.to(DType::i64).to(dtype) : exact.to(dtype);
        EXPECT_TRUE(equal(add_matmul(sum, a, b, factors), expected))
            << dtype_name(dtype) << " " << shape_to_string(sizes) << " "
            << shape_to_string(sum.shape());
      }
    }
  }
}

TEST(OpsTest, SumsAreAddedToBatchesOfProducts) {
  const LocalTensor a = randn({2, 9, 20, 24}, {.seed = 1}, {DType::f64});
  const LocalTensor b = randn({9, 24, 16}, {.seed = 2}, {DType::f64});
  for (const Shape& shape : {Shape{16}, Shape{20, 1}, Shape{9, 1, 16}, Shape{2, 1, 20, 16}}) {
    const LocalTensor sum = randn(shape, {.seed = 3}, {DType::f64});
    const LocalTensor wrong =
        sub(add_matmul(sum, a, b, {.beta = 2}), exact_sum(sum, a, b, {.beta = 2}));
    EXPECT_LT(amax(abs(wrong)).item(), 1e-12) << shape_to_string(shape);
  }
}

TEST(OpsTest, FactorsOfProductsAreTakenAsPyTorchTakesThem) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto all = [](DType dtype, double value) { return full({2, 2}, value, {dtype}); };
  const auto first = [&](DType dtype, double sum, double left, ProductSum factors) {
    return add_matmul(all(dtype, sum), all(dtype, left), all(dtype, 2), factors).to_vector()[0];
  };
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
    EXPECT_EQ(first(dtype, nan, 1, {.beta = 0}), 4);
    EXPECT_EQ(first(dtype, 3, 1, {.beta = 0.5, .alpha = 1.5}), 7.5);
    const bool is_half = dtype == DType::bf16 || dtype == DType::f16;
    EXPECT_EQ(std::isnan(first(dtype, 3, nan, {.alpha = 0})), is_half);
    if (!is_half) {
      EXPECT_EQ(first(dtype, nan, nan, {.beta = 0, .alpha = 0}), 0);
      EXPECT_EQ(first(dtype, 3, nan, {.beta = 2, .alpha = 0}), 6);
    }
    const LocalTensor none = add_matmul(all(dtype, 3), empty({2, 0}, {dtype}),
                                        empty({0, 2}, {dtype}), {.beta = 2, .alpha = nan});
    EXPECT_EQ(none.to_vector(), Values(4, 6));
  }
  for (const DType dtype : {DType::i64, DType::i32, DType::i16, DType::i8, DType::u8}) {
    EXPECT_EQ(first(dtype, 3, 1, {.beta = 0.5}), 4);
    EXPECT_EQ(first(dtype, 3, 1, {.beta = 2.9, .alpha = 1.5}), 10);
  }
  EXPECT_EQ(summary_of([] {
              add_matmul(ones({2}, {DType::f64}), ones({2, 2}), ones({2, 2}));
            }),
            "matmul of float32 [2, 2] and float32 [2, 2]");
}

TEST(OpsTest, BatchesHaveTheSameBitsForEveryNumberOfThreads) {
  const int before = num_threads();
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const Shape& shape : {Shape{100, 16, 16}, Shape{9, 130, 130}, Shape{3, 200, 200}}) {
      const LocalTensor a = randn(shape, {.seed = 5}).to(dtype);
      set_num_threads(1);
      const LocalTensor expected = matmul(a, a);
      EXPECT_TRUE(equal(expected[2], matmul(a[2], a[2])));
      for (const int threads : {2, 4}) {
        set_num_threads(threads);
        EXPECT_TRUE(equal(matmul(a, a), expected));
      }
    }
  }
  set_num_threads(before);
}

TEST(OpsTest, HalfProductsKeepInfinitiesAndNan) {
  const double inf = std::numeric_limits<double>::infinity();
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const LocalTensor values = tensor({inf, -inf, 1.0}).to(dtype).unsqueeze(1);
    const LocalTensor found = matmul(values, tensor({1.0, 0.0}).to(dtype).unsqueeze(0));
    const Values numbers = found.to_vector();
    EXPECT_EQ(numbers[0], inf);
    EXPECT_EQ(numbers[2], -inf);
    EXPECT_EQ(numbers[4], 1);
    EXPECT_TRUE(std::isnan(numbers[1]) && std::isnan(numbers[3]));
  }
}

TEST(OpsTest, ProductsHaveTheSameBitsForEveryNumberOfThreads) {
  const int before = num_threads();
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
    for (const Shape& shape : {Shape{300, 200}, Shape{40, 900}}) {
      const LocalTensor a = randn(shape, {.seed = 5}).to(dtype);
      const LocalTensor b = randn({shape[1], 700}, {.seed = 6}).to(dtype);
      set_num_threads(1);
      const LocalTensor expected = matmul(a, b);
      for (const int threads : {2, 4}) {
        set_num_threads(threads);
        EXPECT_TRUE(equal(matmul(a, b), expected));
      }
    }
  }
  set_num_threads(before);
}

TEST(OpsTest, LargeProductsAreRightHoweverTheirSidesLie) {
  const LocalTensor left = randn({210, 130}, {.seed = 5}), right = randn({130, 170}, {.seed = 6});
  const LocalTensor exact = matmul(left.to(DType::f64), right.to(DType::f64));
  const auto turned = [](const LocalTensor& a) {
    return a.transpose(0, 1).contiguous().transpose(0, 1);
  };
  const auto spread = [](const LocalTensor& a) {
    return empty({a.size(0), a.size(1) + 3}).narrow(1, 2, a.size(1)).copy_(a);
  };
  for (const LocalTensor& a : {left, turned(left), spread(left)}) {
    for (const LocalTensor& b : {right, turned(right), spread(right)}) {
      const LocalTensor wrong = sub(matmul(a, b).to(DType::f64), exact);
      EXPECT_LT(amax(abs(wrong)).item(), 1e-4);
    }
  }
}

TEST(OpsTest, PackedProductsAreExactAtEveryEdge) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto numbers = [](std::int64_t rows, std::int64_t columns, int step) {
    return sub(remainder(arange(rows * columns) * step, 7).view({rows, columns}), 3);
  };
  const auto turned = [](const LocalTensor& a) {
    return a.transpose(0, 1).contiguous().transpose(0, 1);
  };
  const auto spread = [](const LocalTensor& a) {
    return empty({a.size(0), 700}, {a.dtype()}).narrow(1, 2, a.size(1)).copy_(a);
  };
  for (const DType dtype : {DType::f32, DType::f64}) {
    // Of rows, of k and of columns: whole blocks, one more, and a few.
    for (const Shape& sizes :
         {Shape{192, 256, 192}, Shape{97, 513, 97}, Shape{769, 257, 104}, Shape{100, 100, 1043}}) {
      const LocalTensor a = numbers(sizes[0], sizes[1], 11), b = numbers(sizes[1], sizes[2], 17);
      const LocalTensor exact = matmul(a, b);
      const LocalTensor whole = numbers(sizes[0], sizes[2], 5);
      const LocalTensor left = a.to(dtype), right = b.to(dtype);
      for (const LocalTensor& x : {left, turned(left), spread(left)}) {
        for (const LocalTensor& y : {right, turned(right)}) {
          EXPECT_TRUE(equal(matmul(x, y), exact.to(dtype)))
              << dtype_name(dtype) << " " << shape_to_string(sizes);
        }
        for (const LocalTensor& sum : {whole, whole[0], whole.narrow(1, 1, 1), whole[0][1]}) {
          for (const int beta : {1, 3}) {
            EXPECT_TRUE(equal(add_matmul(sum.to(dtype), x, right, {.beta = beta}),
                              add(exact, mul(sum, beta)).to(dtype)))
                << dtype_name(dtype) << " " << shape_to_string(sizes) << " "
                << shape_to_string(sum.shape()) << " " << beta;
          }
        }
        EXPECT_TRUE(
            equal(add_matmul(full({1}, nan, {dtype}), x, right, {.beta = 0}), exact.to(dtype)));
      }
    }
  }
}

TEST(OpsTest, AProductLeavesTheProgramsOpenMpAsItIs) {
  const OneDnn* const library = onednn();
  if (library == nullptr) GTEST_SKIP() << "no oneDNN on OpenMP is found here";
  const int before = library->max_threads();
  library->set_threads(3);
  matmul(ones({200, 200}), ones({200, 200}));
  EXPECT_EQ(library->max_threads(), 3);
  library->set_threads(before);
}

TEST(OpsTest, PicksHaveTheSameBitsForEveryNumberOfThreads) {
  const int before = num_threads();
  const Shape shape = {301, 257};
  const LocalTensor a = randn(shape, {.seed = 5}), source = randn(shape, {.seed = 6});
  // Each position several times, in no order.
  const LocalTensor list = remainder(arange(600) * 7919, 301);
  const LocalTensor index = remainder(arange(301 * 257) * 104729, 301).view(shape);
  const auto all = [&] {
    return std::vector<LocalTensor>{
        index_select(a, 0, list),
        index_select(a.transpose(0, 1), 1, list),
        index_add(a, 0, list.narrow(0, 0, 301), source),
        index_add(a.transpose(0, 1), 1, list.narrow(0, 0, 301), source.transpose(0, 1)),
        gather(a, 0, index),
        scatter(a, 0, index, source),
        scatter_add(a, 0, index, source),
        scatter_add(a.transpose(0, 1), 1, index.transpose(0, 1), source.transpose(0, 1)),
        flip(a, {0, 1}),
        roll(a, {3, -5}, {0, 1}),
        tril(a, 3),
        triu(a, -3),
        pad(a, {3, -2, -1, 4}),
        sort(a, 0).indices,
        sort(a, 1).values,
        topk(a, 9, 0).indices,
        one_hot(list, 301),
        masked_select(a, gt(a, 0))};
  };
  set_num_threads(1);
  const std::vector<LocalTensor> expected = all();
  for (const int threads : {2, 4}) {
    set_num_threads(threads);
    const std::vector<LocalTensor> found = all();
    for (std::size_t i = 0; i < found.size(); ++i) EXPECT_TRUE(equal(found[i], expected[i])) << i;
  }
  set_num_threads(before);
  EXPECT_TRUE(equal(index_add(a.transpose(0, 1), 1, list.narrow(0, 0, 301), source.transpose(0, 1)),
                    expected[2].transpose(0, 1)));
  EXPECT_TRUE(equal(expected[7], expected[6].transpose(0, 1)));
}

TEST(OpsTest, HalvesAreAddedInF32WithoutCopiesOfTheTensors) {
  const Shape shape = {512, 1030};
  const LocalTensor list = remainder(arange(512) * 7919, 37);
  const LocalTensor index = remainder(arange(512 * 1030) * 104729, 512).view(shape);
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const LocalTensor a = randn(shape, {.seed = 5}).to(dtype);
    const LocalTensor source = randn(shape, {.seed = 6}).to(dtype);
    const LocalTensor wide = a.to(DType::f32), parts = source.to(DType::f32);
    const std::vector<LocalTensor> expected = {
        index_add(wide, 0, list, parts, 0.3).to(dtype),
        scatter_add(wide, 0, index, parts).to(dtype), scatter_add(wide, 1, index, parts).to(dtype),
        index_add(wide.narrow(1, 0, 3), 0, list, parts.narrow(1, 0, 3)).to(dtype)};
    const HostMemoryMeter meter;
    const std::vector<LocalTensor> found = {
        index_add(a, 0, list, source, 0.3), scatter_add(a, 0, index, source),
        scatter_add(a, 1, index, source),
        index_add(a.narrow(1, 0, 3), 0, list, source.narrow(1, 0, 3))};
    const std::ptrdiff_t results = meter.now();
    // Less than half of a tensor.
    ASSERT_TRUE(!meter.counts() || meter.peak() - results < 512 * 1030) << meter.peak();
    for (std::size_t i = 0; i < found.size(); ++i) EXPECT_TRUE(equal(found[i], expected[i])) << i;
  }
}

TEST(SumTest, TheOrderDependsOnTheNumberOfElementsOnly) {
  const LocalTensor values = randn({37, 5001}, {.seed = 7});
  const LocalTensor rows = sum(values, {1});
  const LocalTensor turned = values.transpose(0, 1).clone();
  EXPECT_TRUE(equal(rows, sum(turned, {0})));
  EXPECT_EQ(sum(values[3]).item(), rows[3].item());
  EXPECT_EQ(sum(turned.select(1, 3)).item(), rows[3].item());
}

TEST(SumTest, SixteenLanesThenPairs) {
  // The definition, written out: lanes within blocks of 1024, halves of the list of blocks.
  const std::vector<double> values = randn({3000}, {.seed = 1}).to_vector();
  const auto block = [&](std::size_t begin, std::size_t end) {
    float lanes[16] = {};
    for (std::size_t i = begin; i < end; ++i)
      lanes[(i - begin) % 16] += static_cast<float>(values[i]);
    for (int half = 8; half > 0; half /= 2) {
      for (int lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
    }
    return lanes[0];
  };
  const float expected = block(0, 1024) + (block(1024, 2048) + block(2048, 3000));
  EXPECT_EQ(sum(randn({3000}, {.seed = 1})).item(), expected);
}

TEST(SumTest, AnyNumberOfBlocksIsJoinedInHalves) {
  constexpr std::int64_t kBlock = 1024;
  const LocalTensor values = randn({70 * kBlock}, {.seed = 2});
  const LocalTensor factors = add(mul(values, 0.001), 1);
  const std::vector<double> blocks = sum(values.view({70, kBlock}), {1}).to_vector();
  const std::vector<double> products = prod(factors.view({70, kBlock}), 1).to_vector();
  const std::function<float(std::size_t, std::size_t, bool)> joined =
      [&](std::size_t first, std::size_t count, bool adds) -> float {
    if (count == 1) return static_cast<float>((adds ? blocks : products)[first]);
    const float left = joined(first, count / 2, adds);
    const float right = joined(first + count / 2, count - count / 2, adds);
    return adds ? left + right : left * right;
  };
  for (std::int64_t count = 1; count <= 70; ++count) {
    const auto all = static_cast<std::size_t>(count);
    EXPECT_EQ(sum(values.narrow(0, 0, count * kBlock)).item(), joined(0, all, true)) << count;
    EXPECT_EQ(prod(factors.narrow(0, 0, count * kBlock)).item(), joined(0, all, false)) << count;
  }
}

TEST(SumTest, AnExtremeOfManyBlocksKeepsNanAndTheSignOfZero) {
  const LocalTensor zeros_of = full({50000}, -0.0);
  EXPECT_TRUE(std::signbit(amax(zeros_of).item()));
  zeros_of[33333].fill_(0.0);
  EXPECT_FALSE(std::signbit(amax(zeros_of).item()));
  EXPECT_TRUE(std::signbit(amin(zeros_of).item()));
  const LocalTensor numbers = randn({50000}, {.seed = 3});
  for (const std::int64_t place : {0, 4096, 49151, 49999}) {
    const LocalTensor one = numbers.clone();
    one[place].fill_(std::nan(""));
    EXPECT_TRUE(std::isnan(amax(one).item())) << place;
    EXPECT_TRUE(std::isnan(amin(one).item())) << place;
  }
}

TEST(SumTest, ManyHalvesDoNotSaturate) {
  EXPECT_EQ(sum(ones({10000}, {DType::f16})).item(), 10000);
  EXPECT_EQ(sum(ones({70000}, {DType::bf16})).item(), 70144);  // the bfloat16 next to 70,000
}

TEST(SumTest, ADimNamedTwiceIsAnError) {
  EXPECT_THROW(sum(ones({2, 2}), {0, -2}), Error);
  EXPECT_THROW(sum(ones({2, 2}), {2}), Error);
}

TEST(CreationTest, DistancesAreEqualAndBothEndsExact) {
  EXPECT_EQ(linspace(0, 1, 5, {DType::f64}).to_vector(), (Values{0, 0.25, 0.5, 0.75, 1}));
  EXPECT_EQ(linspace(3, 0.1, 4, {DType::f64}).to_vector().back(), 0.1);
  EXPECT_EQ(linspace(2, 9, 1).to_vector(), Values{2});
  EXPECT_EQ(linspace(2, 9, 0).shape(), Shape{0});
  EXPECT_EQ(summary_of([] { linspace(0, 1, -1); }), "linspace of -1 numbers");
}

TEST(CreationTest, SequencesAreOfNumbersThatTheDTypeHas) {
  EXPECT_EQ(summary_of([] { linspace(0, 1, 3, {DType::boolean}); }), "linspace of bool");
  EXPECT_EQ(summary_of([] { arange(2, {DType::boolean}); }), "arange of bool");
  EXPECT_EQ(summary_of([] { arange(0, 2, 1, {DType::boolean}); }), "arange of bool");
  EXPECT_EQ(summary_of([] { linspace(0, 300, 4, {DType::u8}); }),
            "linspace of uint8 with an end of 300");
  EXPECT_EQ(linspace(-3, 3, 4, {DType::u8}).to_vector(), (Values{253, 169, 86, 3}));
  EXPECT_EQ(summary_of([] { Scalar(1.5).to_i64(); }), "1.5 is asked for as an integer");
}

TEST(SumTest, ASumOfMinusZeroIsZeroWithoutDims) {
  const LocalTensor number = tensor_from(std::vector<double>{-0.0}, {}, DType::f32);
  EXPECT_FALSE(std::signbit(sum(number).to_vector()[0]));
  EXPECT_FALSE(std::signbit(mean(number).to_vector()[0]));
}

TEST(CreationTest, TheUnitMatrixMayBeOblong) {
  EXPECT_EQ(eye(2, 3).to_vector(), (Values{1, 0, 0, 0, 1, 0}));
  EXPECT_EQ(eye(3, 2, {DType::i64}).to_vector(), (Values{1, 0, 0, 1, 0, 0}));
  EXPECT_EQ(eye(0, 2).shape(), (Shape{0, 2}));
}

TEST(CreationTest, MemoryOfTheCallersIsSharedAndGivenBackOnce) {
  std::vector<float> values = {1, 2, 3, 4};
  int released = 0;
  {
    const LocalTensor view =
        from_blob(values.data(), {2, 2}, {DType::f32}, [&] { ++released; }).select(0, 1);
    view.fill_(7);
    EXPECT_EQ(released, 0);
  }
  EXPECT_EQ(released, 1);
  EXPECT_EQ(values, (std::vector<float>{1, 2, 7, 7}));
  EXPECT_EQ(summary_of([] { from_blob(nullptr, {2}); }), "from_blob of no memory and shape [2]");
  EXPECT_EQ(from_blob(nullptr, {0}).numel(), 0);
}

}  // namespace
}  // namespace dtrun::tensors
