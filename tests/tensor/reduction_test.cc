// What the goldens do not show of reductions: bits, exactness, errors.
#include "dtrun/tensor/ops/reduction.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>

#include "dtrun/base/error.h"
#include "dtrun/tensor/literal.h"
#include "dtrun/tensor/ops.h"
#include "dtrun/tensor/threads.h"

namespace dtrun::tensors {
namespace {

bool has_same_bits(const LocalTensor& a, const LocalTensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         std::memcmp(a.data(), b.data(), a.bytes()) == 0;
}

class ReductionTest : public ::testing::Test {
 protected:
  void TearDown() override { set_num_threads(before_); }
  const int before_ = num_threads();
};

using Reduce = std::function<LocalTensor(const LocalTensor&, const std::vector<int>&)>;
const Reduce kReductions[] = {
    [](const LocalTensor& x, const std::vector<int>& dims) { return sum(x, dims); },
    [](const LocalTensor& x, const std::vector<int>& dims) { return mean(x, dims); },
    [](const LocalTensor& x, const std::vector<int>& dims) { return amax(x, dims); },
    [](const LocalTensor& x, const std::vector<int>& dims) { return var(x, dims); },
    [](const LocalTensor& x, const std::vector<int>& dims) { return norm(x, 1, dims); },
    [](const LocalTensor& x, const std::vector<int>& dims) { return norm(x, 2, dims); },
    [](const LocalTensor& x, const std::vector<int>& dims) { return norm(x, 3, dims); },
    [](const LocalTensor& x, const std::vector<int>& dims) { return logsumexp(x, dims); },
    [](const LocalTensor& x, const std::vector<int>& dims) { return amin(x, dims); },
    [](const LocalTensor& x, const std::vector<int>& dims) { return prod(x, dims[0]); },
    [](const LocalTensor& x, const std::vector<int>& dims) { return argmax(x, dims[0]); }};
/// Those that take this dtype.
std::vector<Reduce> reductions_of(DType dtype) {
  if (is_floating_point(dtype)) return {std::begin(kReductions), std::end(kReductions)};
  return {kReductions[0], kReductions[2], kReductions[8], kReductions[9], kReductions[10]};
}
using Scan = LocalTensor (*)(const LocalTensor&, int);
constexpr Scan kScans[] = {cumsum, reverse_cumsum, cumprod};

TEST_F(ReductionTest, BitsDoNotDependOnTheNumberOfThreads) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
    const LocalTensor x = randn({3, 2100, 29}, {.seed = 8}).to(dtype);
    for (const Reduce& reduce : kReductions) {
      for (const std::vector<int>& dims : {std::vector<int>{1}, {2}, {0}, {0, 1}, {1, 2}}) {
        set_num_threads(1);
        const LocalTensor expected = reduce(x, dims);
        for (const int threads : {2, 4}) {
          set_num_threads(threads);
          EXPECT_TRUE(has_same_bits(reduce(x, dims), expected));
        }
      }
    }
  }
}

TEST_F(ReductionTest, BitsOfScansDependNeitherOnThreadsNorOnTheLayout) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64, DType::i32}) {
    const LocalTensor x = mul(randn({3, 2100, 29}, {.seed = 8}), 1.5).to(dtype);
    const LocalTensor turned = x.permute({2, 0, 1}).clone().permute({1, 2, 0});
    const LocalTensor spread = empty({3, 2100, 87}, {dtype}).slice(2, 0, 87, 3).copy_(x);
    for (const Scan scan : kScans) {
      for (const int dim : {0, 1, 2}) {
        set_num_threads(1);
        const LocalTensor expected = scan(x, dim);
        for (const int threads : {1, 2, 4}) {
          set_num_threads(threads);
          for (const LocalTensor& layout : {x, turned, spread})
            EXPECT_TRUE(has_same_bits(scan(layout, dim), expected)) << dim << ", " << threads;
        }
      }
    }
  }
}

TEST_F(ReductionTest, BitsDoNotDependOnTheLayout) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const LocalTensor x = randn({5, 2500, 33}, {.seed = 9}).to(dtype);
    const LocalTensor turned = x.permute({2, 0, 1}).clone().permute({1, 2, 0});
    const LocalTensor spread = empty({5, 2500, 99}, {dtype}).slice(2, 0, 99, 3).copy_(x);
    for (const Reduce& reduce : kReductions) {
      for (const std::vector<int>& dims : {std::vector<int>{1}, {2}, {0}, {1, 2}, {0, 2}}) {
        const LocalTensor expected = reduce(x, dims);
        EXPECT_TRUE(has_same_bits(reduce(turned, dims), expected));
        EXPECT_TRUE(has_same_bits(reduce(spread, dims), expected));
      }
    }
  }
}

// Columns side by side are folded in panels, as wide as the number of threads allows.
TEST_F(ReductionTest, ColumnsHaveTheBitsOfRowsForEveryNumberOfThreads) {
#if defined(__SANITIZE_THREAD__)
  const std::vector<std::int64_t> kRows = {300};  // an element takes fifty times as long
#else
  const std::vector<std::int64_t> kRows = {60, 255, 700, 2100};
#endif
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
    for (const std::int64_t rows : kRows) {
      const LocalTensor x = randn({rows, 1601}, {.seed = 10}).to(dtype);
      const LocalTensor turned = x.transpose(0, 1).contiguous();
      for (const Reduce& reduce : kReductions) {
        set_num_threads(1);
        const LocalTensor expected = reduce(turned, {1});
        for (const int threads : {1, 2, 4}) {
          set_num_threads(threads);
          EXPECT_TRUE(has_same_bits(reduce(x, {0}), expected)) << rows << " rows";
        }
      }
    }
  }
}

/// Rows with equal numbers, both zeros and, where there are any, nans.
LocalTensor rows_with_ties(std::int64_t rows, std::int64_t length, DType dtype) {
  const LocalTensor x = mul(randn({rows, length}, {.seed = 12}), 4);
  x.narrow(0, 0, rows / 4).copy_(mul(x.narrow(0, 0, rows / 4), 0.5).to(DType::i64));
  x.narrow(0, rows / 4, 3).fill_(-0.0);
  x.narrow(0, rows / 4 + 1, 1).narrow(1, length / 2, 1).fill_(0.0);
  if (is_floating_point(dtype)) x.narrow(0, rows - 5, 5).narrow(1, length / 3, 1).fill_(NAN);
  return x.to(dtype);
}

// Short rows are taken together, some as columns, some after they are converted.
TEST_F(ReductionTest, ShortRowsHaveTheBitsThatEachHasAlone) {
  constexpr std::int64_t kRows = 77;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64, DType::i64, DType::i8}) {
    for (const std::int64_t length : {1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 48, 64, 100}) {
      const LocalTensor x = rows_with_ties(kRows, length, dtype);
      const LocalTensor apart = zeros({kRows, length + 9}, {dtype}).narrow(1, 4, length).copy_(x);
      for (const Reduce& reduce : reductions_of(dtype)) {
        for (const LocalTensor& layout : {x, apart}) {
          const LocalTensor together = reduce(layout, {1});
          for (std::int64_t row = 0; row < kRows; ++row) {
            const LocalTensor alone = reduce(x[row], {0});
            ASSERT_TRUE(has_same_bits(together[row].clone(), alone))
                << dtype_name(dtype) << " row " << row << " of " << length;
          }
        }
      }
    }
  }
}

// Rows of a narrow panel that follow each other in memory are taken as one long row.
TEST_F(ReductionTest, NarrowColumnsHaveTheBitsOfRows) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64, DType::i64}) {
    for (const std::int64_t width : {2, 8, 16, 24, 32, 64}) {
      const LocalTensor x = mul(randn({2300, width}, {.seed = 13}), 4).to(dtype);
      const LocalTensor turned = x.transpose(0, 1).contiguous();
      for (const Reduce& reduce : reductions_of(dtype)) {
        for (const std::int64_t rows : {100, 128, 200, 2300}) {
          EXPECT_TRUE(has_same_bits(reduce(x.narrow(0, 0, rows), {0}),
                                    reduce(turned.narrow(1, 0, rows), {1})))
              << dtype_name(dtype) << ", " << rows << " of " << width;
        }
      }
    }
  }
}

// Many short lines are turned.
TEST_F(ReductionTest, ScansOfShortLinesHaveTheBitsThatEachHasAlone) {
  constexpr std::int64_t kLines = 200;
  for (const std::int64_t length : {8, 16, 24, 120, 128}) {
    const LocalTensor x = rows_with_ties(kLines, length, DType::f32);
    for (const Scan scan : kScans) {
      const LocalTensor together = scan(x, 1);
      for (std::int64_t line = 0; line < kLines; ++line)
        ASSERT_TRUE(has_same_bits(together[line].clone(), scan(x[line], 0))) << line;
    }
  }
}

// Rows are multiplied four at a time; of products that vanish only the signs are multiplied.
TEST_F(ReductionTest, ProductsThatVanishHaveTheBitsThatEachHasAlone) {
  constexpr std::int64_t kRows = 64;
  int zeros = 0, others = 0;
  for (const double scale : {0.3, 0.7, 0.9, 1.0, 1.4, 4.0}) {
    for (const std::int64_t length : {64, 256, 1024}) {
      const LocalTensor x = mul(randn({kRows, length}, {.seed = 14}), scale);
      x.narrow(0, 7, 1).narrow(1, 5, 1).fill_(INFINITY);
      const LocalTensor together = prod(x, 1);
      for (std::int64_t row = 0; row < kRows; ++row) {
        const LocalTensor alone = prod(x[row], 0);
        ASSERT_TRUE(has_same_bits(together[row].clone(), alone)) << scale << ", " << length;
        ++(alone.item() == 0 ? zeros : others);
      }
    }
  }
  EXPECT_GT(zeros, 100);
  EXPECT_GT(others, 100);
}

TEST_F(ReductionTest, AVarianceFarFromZeroIsExact) {
  const LocalTensor x = randn({100000}, {.seed = 1}, {.dtype = DType::f64});
  const LocalTensor far = add(x, 1e6);
  EXPECT_NEAR(var(far).item(), var(x).item(), 1e-9);
  EXPECT_NEAR(var(add(x, 1e4).to(DType::f32)).item(), var(x).item(), 1e-3);
}

TEST_F(ReductionTest, SumsAreMoreExactThanARunningSum) {
  const LocalTensor x = full({1 << 20}, 0.1);
  EXPECT_NEAR(sum(x).item(), 0.1f * (1 << 20), 1);
  EXPECT_NEAR(mean(x).item(), 0.1f, 1e-7);
}

TEST_F(ReductionTest, TheFirstOfEqualElementsIsFoundInEveryBlock) {
  const LocalTensor x = zeros({5000});
  x[1500].fill_(3);
  x[4000].fill_(3);
  EXPECT_EQ(argmax(x).item(), 1500);
  x[1500].fill_(2);
  EXPECT_EQ(argmax(x).item(), 4000);
  x[4500].fill_(NAN);
  EXPECT_EQ(argmax(x).item(), 4500);
  EXPECT_EQ(argmin(x).item(), 4500);
}

TEST_F(ReductionTest, WhatHasNoResultIsNamed) {
  const auto summary = [](const std::function<void()>& action) -> std::string {
    try {
      action();
    } catch (const base::Error& error) {
      return error.summary();
    }
    return "no error";
  };
  EXPECT_EQ(summary([] { amax(ones({0, 3}), {0}); }), "amax of no elements: shape [0, 3]");
  EXPECT_EQ(summary([] { argmin(ones({0})); }), "argmin of no elements: shape [0]");
  EXPECT_EQ(summary([] { mean(tensor({1, 2})); }), "mean does not take int64 tensors");
  EXPECT_EQ(summary([] { var(ones({2, 2}), {0, -2}); }), "var was given dim 0 twice");
  EXPECT_EQ(sum(ones({0, 3}), {0}).to_vector(), (std::vector<double>{0, 0, 0}));
  EXPECT_TRUE(std::isnan(mean(ones({0})).item()));
}

}  // namespace
}  // namespace dtrun::tensors
