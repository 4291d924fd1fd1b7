// Attention in tiles against the formula, over shapes that do not fit the tiles.
#include "dtrun/tensor/ops/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>

#include "dtrun/base/error.h"
#include "dtrun/tensor/ops.h"
#include "dtrun/tensor/ops/rows.h"
#include "dtrun/tensor/threads.h"

namespace dtrun::tensors {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Example {
  LocalTensor query, key, value, gradient;
  AttentionForm form;
};

LocalTensor numbers(const Shape& shape, std::uint64_t seed, DType dtype) {
  return randn(shape, {seed}, {.dtype = DType::f64}).to(dtype);
}

Example example(std::int64_t queries, std::int64_t keys, DType dtype, AttentionForm form = {}) {
  form.scale = 0.3;
  return {numbers({2, 3, queries, 20}, 1, dtype), numbers({2, 3, keys, 20}, 2, dtype),
          numbers({2, 3, keys, 35}, 3, dtype), numbers({2, 3, queries, 35}, 4, dtype),
          std::move(form)};
}

/// Of f64, in whole scores.
LocalTensor weights_of(const Example& x) {
  LocalTensor scores =
      matmul(x.query.to(DType::f64), x.key.to(DType::f64).transpose(-2, -1)) * x.form.scale;
  if (x.form.mask.defined() && x.form.mask.dtype() == DType::boolean) {
    scores = where(x.form.mask, scores, full({}, -kInfinity, {.dtype = DType::f64}));
  } else if (x.form.mask.defined()) {
    scores = scores + x.form.mask.to(DType::f64);
  }
  if (x.form.causal_from) {
    const LocalTensor seen =
        le(arange(x.key.size(-2)), (arange(x.query.size(-2)) + *x.form.causal_from).unsqueeze(-1));
    scores = where(seen, scores, full({}, -kInfinity, {.dtype = DType::f64}));
  }
  const LocalTensor weights = softmax(scores, -1);
  return where(isnan(weights), full({}, 0, {.dtype = DType::f64}), weights);
}

double distance(const LocalTensor& a, const LocalTensor& b) {
  return a.numel() == 0 ? 0 : amax(abs(a.to(DType::f64) - b.to(DType::f64))).item();
}

void expect_right(const Example& x, double tolerance) {
  const Attended attended = attention(x.query, x.key, x.value, x.form);
  const LocalTensor weights = weights_of(x), v = x.value.to(DType::f64);
  const LocalTensor g = x.gradient.to(DType::f64);
  EXPECT_LT(distance(attended.output, matmul(weights, v)), tolerance);
  const AttentionGradients back =
      attention_backward(x.gradient, x.query, x.key, x.value, attended, x.form);
  const LocalTensor slopes = matmul(g, v.transpose(-2, -1));
  const LocalTensor scores = weights * (slopes - sum(slopes * weights, {-1}, true)) * x.form.scale;
  EXPECT_LT(distance(back.query, matmul(scores, x.key.to(DType::f64))), 8 * tolerance);
  EXPECT_LT(distance(back.key, matmul(scores.transpose(-2, -1), x.query.to(DType::f64))),
            8 * tolerance);
  EXPECT_LT(distance(back.value, matmul(weights.transpose(-2, -1), g)), 8 * tolerance);
}

TEST(AttentionTest, AgreesWithTheFormulaWhateverTheShape) {
  const std::pair<std::int64_t, std::int64_t> shapes[] = {{1, 1},    {5, 3},     {97, 130},
                                                          {200, 64}, {103, 291}, {96, 256}};
  for (const auto& [queries, keys] : shapes) {
    SCOPED_TRACE(testing::Message() << queries << " x " << keys);
    LocalTensor some = le(numbers({queries, keys}, 5, DType::f64), 0.3);
    some.select(0, queries - 1).fill_(false);
    const LocalTensor bias = numbers({3, 1, keys}, 6, DType::f64);
    for (const AttentionForm& form :
         {AttentionForm{}, AttentionForm{.causal_from = 0}, AttentionForm{.causal_from = 7},
          AttentionForm{.mask = some}, AttentionForm{.mask = bias},
          AttentionForm{.causal_from = 1, .mask = bias}}) {
      expect_right(example(queries, keys, DType::f64, form), 1e-13);
      expect_right(example(queries, keys, DType::f32, form), 5e-6);
    }
    expect_right(example(queries, keys, DType::bf16), 0.03);
    expect_right(example(queries, keys, DType::f16), 0.004);
  }
}

TEST(AttentionTest, WhatIsEmptyHasZerosOrNothing) {
  for (const auto& [queries, keys] : {std::pair{0, 4}, std::pair{4, 0}, std::pair{0, 0}}) {
    const Example x = example(queries, keys, DType::f32);
    const Attended attended = attention(x.query, x.key, x.value, x.form);
    EXPECT_EQ(sum(abs(attended.output)).item(), 0);
    const AttentionGradients back =
        attention_backward(x.gradient, x.query, x.key, x.value, attended, x.form);
    EXPECT_EQ(sum(abs(back.query)).item() + sum(abs(back.key)).item(), 0);
    EXPECT_EQ(sum(abs(back.value)).item(), 0);
  }
}

TEST(AttentionTest, NanAndBlindQueriesStayWhereTheyAre) {
  Example x = example(4, 140, DType::f32);
  x.query[0][0][1].fill_(std::nan(""));
  x.form.mask = full({4, 140}, 0);
  x.form.mask[2].fill_(-kInfinity);
  const Attended attended = attention(x.query, x.key, x.value, x.form);
  EXPECT_TRUE(all(isnan(attended.output[0][0][1])).item() != 0);
  EXPECT_EQ(sum(abs(attended.output[0][0][2])).item(), 0);
  EXPECT_EQ(sum(isnan(attended.output)).item(), 35);
}

bool are_same_bits(const LocalTensor& a, const LocalTensor& b) {
  return std::memcmp(a.data(), b.data(), a.bytes()) == 0;
}

TEST(AttentionTest, BitsDoNotDependOnThreadsOrLayout) {
  const int before = num_threads();
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Example x = example(300, 200, dtype, {.causal_from = 0});
    const auto run = [&](const LocalTensor& key) {
      const Attended forward = attention(x.query, key, x.value, x.form);
      const AttentionGradients back =
          attention_backward(x.gradient, x.query, key, x.value, forward, x.form);
      return std::vector<LocalTensor>{forward.output, back.query, back.key, back.value};
    };
    set_num_threads(1);
    const std::vector<LocalTensor> alone = run(x.key);
    const LocalTensor turned = x.key.transpose(-2, -1).contiguous().transpose(-2, -1);
    for (const int threads : {1, 2, 4}) {
      set_num_threads(threads);
      const std::vector<LocalTensor> many = run(threads == 1 ? turned : x.key);
      for (std::size_t i = 0; i < many.size(); ++i) EXPECT_TRUE(are_same_bits(alone[i], many[i]));
    }
  }
  set_num_threads(before);
}

/// In KiB, by its name in /proc/self/status.
std::int64_t memory(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word != name) continue;
    std::int64_t kib = 0;
    status >> kib;
    return kib;
  }
  return 0;
}

TEST(AttentionTest, MemoryDoesNotGrowWithTheScores) {
  const LocalTensor x = randn({8192, 16}, {1});
  const LocalTensor g = randn({8192, 16}, {2});
  std::ofstream("/proc/self/clear_refs") << "5";  // the peak begins anew
  const std::int64_t before = memory("VmRSS:");
  const Attended attended = attention(x, x, x, {.scale = 0.25});
  const AttentionGradients back = attention_backward(g, x, x, x, attended, {.scale = 0.25});
  EXPECT_GT(sum(abs(back.key)).item(), 0);
  // The scores alone would be 256 MiB.
  EXPECT_LT(memory("VmHWM:") - before, 64 << 10);
}

TEST(AttentionTest, WhatDoesNotFitIsRefused) {
  const LocalTensor x = randn({2, 3, 4}, {1});
  EXPECT_THROW(attention(x, randn({2, 3, 5}, {1}), x, {}), base::Error);
  EXPECT_THROW(attention(x, x, x.to(DType::f64), {}), base::Error);
  EXPECT_THROW(attention(randn({4}, {1}), x, x, {}), base::Error);
  EXPECT_THROW(attention(arange(4).view({2, 2}), arange(4).view({2, 2}), x, {}), base::Error);
}

}  // namespace
}  // namespace dtrun::tensors
