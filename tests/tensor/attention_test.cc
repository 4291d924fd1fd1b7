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

bool are_same_bits(const LocalTensor& a, const LocalTensor& b) {
  return std::memcmp(a.data(), b.data(), a.bytes()) == 0;
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

TEST(AttentionTest, ANanOfAnyBitsInAKeyMakesItsHeadNan) {
  for (const std::uint32_t bits : {0x7fc00000U, 0x7fc00001U, 0xffffffffU}) {
    const Example x = example(5, 200, DType::f32);
    std::memcpy(x.key.data_as<float>() + 20 * 130, &bits, sizeof bits);
    const LocalTensor nans = isnan(attention(x.query, x.key, x.value, x.form).output);
    const LocalTensor of_head = nans.select(0, 0).select(0, 0);
    EXPECT_EQ(sum(of_head.to(DType::i64)).item(), 5 * 35) << bits;
    EXPECT_EQ(sum(nans.to(DType::i64)).item(), 5 * 35) << bits;
  }
}

TEST(AttentionTest, AgreesWithTheFormulaWhateverTheShape) {
  const std::pair<std::int64_t, std::int64_t> shapes[] = {
      {1, 1},   {1, 129}, {1, 300},  {2, 16},   {5, 3},     {7, 65},
      {16, 70}, {96, 64}, {97, 130}, {200, 64}, {103, 291}, {96, 256}};
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

/// The rows of keys lie 8 numbers apart, the values' heads between each other.
Example one_query(std::int64_t keys, std::int64_t numbers_of_key, std::int64_t numbers_of_value,
                  DType dtype) {
  return {numbers({2, 3, 1, numbers_of_key}, 1, dtype),
          numbers({2, 3, keys, numbers_of_key + 8}, 2, dtype).narrow(-1, 0, numbers_of_key),
          numbers({2, keys, 3, numbers_of_value}, 3, dtype).transpose(1, 2),
          {},
          {}};
}

// One query meets keys and values row by row.
TEST(AttentionTest, OneQueryAgreesWithTheFormula) {
  for (const DType dtype : {DType::bf16, DType::f32, DType::f16}) {
    const double unit = dtype == DType::bf16 ? 0x1p-8 : dtype == DType::f16 ? 0x1p-10 : 0;
    for (const std::int64_t keys : {1, 15, 16, 17, 127, 128, 129, 300}) {
      for (const auto& [numbers_of_key, numbers_of_value] :
           {std::pair{32, 32}, std::pair{64, 64}, std::pair{64, 160}, std::pair{96, 20},
            std::pair{5, 80}}) {
        SCOPED_TRACE(testing::Message()
                     << dtype_name(dtype) << ", " << keys << " keys of " << numbers_of_key
                     << " numbers, values of " << numbers_of_value);
        const Example x = one_query(keys, numbers_of_key, numbers_of_value, dtype);
        const LocalTensor some = le(arange(keys), keys / 2);
        for (const AttentionForm& form :
             {AttentionForm{.scale = 0.3}, AttentionForm{.scale = 0.3, .causal_from = keys / 3},
              AttentionForm{.scale = 0.3, .mask = some.view({1, keys})},
              AttentionForm{.scale = 0.3, .mask = numbers({3, 1, keys}, 6, DType::f64)}}) {
          const Example asked{x.query, x.key, x.value, {}, form};
          const Attended attended = attention(x.query, x.key, x.value, form);
          const LocalTensor exact = matmul(weights_of(asked), x.value.to(DType::f64));
          const LocalTensor rounding = abs(exact) * unit;
          EXPECT_LT(amax(abs(attended.output.to(DType::f64) - exact) - rounding).item(), 1e-5);
        }
      }
    }
  }
}

TEST(AttentionTest, OneQueryOfFloatsFindsTheSameBitsInEveryLayout) {
  for (const std::int64_t many : {64, 20}) {
    const Example x = one_query(300, many, many, DType::f32);
    const AttentionForm form{.scale = 0.2};
    const Attended lying = attention(x.query, x.key, x.value, form);
    const LocalTensor turned = x.key.transpose(-2, -1).contiguous().transpose(-2, -1);
    const Attended moved = attention(x.query, turned, x.value.contiguous(), form);
    EXPECT_TRUE(are_same_bits(lying.output, moved.output));
    EXPECT_TRUE(are_same_bits(lying.logsumexp, moved.logsumexp));
  }
}

TEST(AttentionTest, OneQueryFindsTheSameBitsAlongsideOthers) {
  const int before = num_threads();
  for (const DType dtype : {DType::bf16, DType::f32}) {
    const LocalTensor query = numbers({2, 8, 1, 64}, 1, dtype);
    const LocalTensor key = numbers({2, 1, 300, 64}, 2, dtype);
    const LocalTensor value = numbers({2, 1, 300, 64}, 3, dtype);
    const LocalTensor keys = key.expand({2, 8, 300, 64}), values = value.expand({2, 8, 300, 64});
    const AttentionForm form{.scale = 0.2, .causal_from = 270};
    set_num_threads(1);
    const Attended shared = attention(query, keys, values, form);
    EXPECT_EQ(sum(isnan(shared.logsumexp)).item(), 0);
    for (const int threads : {1, 2, 4}) {
      set_num_threads(threads);
      const Attended apart = attention(query, keys.contiguous(), values.contiguous(), form);
      EXPECT_TRUE(are_same_bits(shared.output, apart.output));
      EXPECT_TRUE(are_same_bits(shared.logsumexp, apart.logsumexp));
      const Attended alone = attention(query.narrow(1, 5, 1), key, value, form);
      EXPECT_TRUE(are_same_bits(shared.output.narrow(1, 5, 1).contiguous(), alone.output));
    }
  }
  set_num_threads(before);
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

TEST(AttentionTest, OneQueryKeepsNansAndNumbersWithoutEnd) {
  for (const DType dtype : {DType::bf16, DType::f32}) {
    const LocalTensor query = numbers({3, 1, 64}, 1, dtype), key = numbers({3, 40, 64}, 2, dtype);
    const LocalTensor value = numbers({3, 40, 64}, 3, dtype);
    key[0][17].fill_(std::nan(""));
    value[1][20][33].fill_(kInfinity);
    const Attended attended = attention(query, key, value, {.scale = 0.1});
    EXPECT_TRUE(all(isnan(attended.output[0])).item() != 0);
    EXPECT_EQ(attended.output[1][0][33].item(), kInfinity);
    EXPECT_EQ(sum(isnan(attended.output)).item(), 64);
    const LocalTensor blind = full({1, 40}, -kInfinity);
    const AttentionForm form{.scale = 0.1, .mask = blind};
    EXPECT_EQ(sum(abs(attention(query, key, value, form).output[2])).item(), 0);
  }
}

TEST(AttentionTest, BitsDoNotDependOnThreadsOrLayout) {
  const int before = num_threads();
  for (const auto& [queries, dtype] : {std::pair{300, DType::f32}, std::pair{300, DType::bf16},
                                       std::pair{1, DType::f32}, std::pair{9, DType::bf16}}) {
    const Example x = example(queries, 200, dtype, {.causal_from = 0});
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

/// Some queries of an example, which see what they saw among the others.
Attended attention_of(const Example& x, std::int64_t first, std::int64_t count) {
  AttentionForm form = x.form;
  if (form.causal_from) form.causal_from = *form.causal_from + first;
  if (form.mask.defined()) form.mask = form.mask.narrow(-2, first, count);
  return attention(x.query.narrow(-2, first, count), x.key, x.value, form);
}

// So a model that generates finds what it would find in the whole text, and a part of the queries
// what the whole would.
TEST(AttentionTest, AQuerysBitsDoNotDependOnHowManyThereAre) {
  for (const DType dtype : {DType::f32, DType::f64, DType::f16}) {
    for (const auto& [queries, keys] : {std::pair{200, 200}, std::pair{130, 47}}) {
      const LocalTensor bias = numbers({queries, keys}, 6, DType::f64);
      for (const AttentionForm& form :
           {AttentionForm{}, AttentionForm{.causal_from = 0}, AttentionForm{.mask = bias}}) {
        const Example x = example(queries, keys, dtype, form);
        const Attended all = attention_of(x, 0, queries);
        for (const auto& [first, count] :
             {std::pair{0, 1}, std::pair{77, 1}, std::pair{40, 7}, std::pair{queries - 96, 96}}) {
          const Attended some = attention_of(x, first, count);
          EXPECT_TRUE(are_same_bits(all.output.narrow(-2, first, count).contiguous(), some.output));
          EXPECT_TRUE(
              are_same_bits(all.logsumexp.narrow(-1, first, count).contiguous(), some.logsumexp));
        }
      }
    }
  }
}

TEST(AttentionTest, HeadsThatShareTheirKeysFindWhatEachFindsAlone) {
  for (const std::int64_t queries : {1, 5, 50, 120}) {
    const LocalTensor query = numbers({2, 3, 8, queries, 32}, 1, DType::f32);
    const LocalTensor key = numbers({2, 3, 1, 140, 32}, 2, DType::f32);
    const LocalTensor value = numbers({2, 3, 1, 140, 32}, 3, DType::f32);
    const AttentionForm form{.scale = 0.2, .causal_from = 90};
    const Attended shared =
        attention(query, key.expand({2, 3, 8, 140, 32}), value.expand({2, 3, 8, 140, 32}), form);
    for (const std::int64_t head : {0, 3, 7}) {
      const Attended alone = attention(query.narrow(2, head, 1), key, value, form);
      EXPECT_TRUE(are_same_bits(shared.output.narrow(2, head, 1).contiguous(), alone.output));
      EXPECT_TRUE(are_same_bits(shared.logsumexp.narrow(2, head, 1).contiguous(), alone.logsumexp));
    }
    const LocalTensor of_all = key.expand({2, 3, 8, 140, 32}).contiguous();
    const Attended apart =
        attention(query, of_all, value.expand({2, 3, 8, 140, 32}).contiguous(), form);
    EXPECT_TRUE(are_same_bits(shared.output, apart.output));
    // Batches that lie in another order have no one step from head to head.
    const LocalTensor turned = query.transpose(0, 1).contiguous().transpose(0, 1);
    EXPECT_TRUE(are_same_bits(
        attention(turned, of_all, value.expand({2, 3, 8, 140, 32}), form).output, shared.output));
  }
}

// Where queries and keys of a head are one tile, the way back packs nothing for others.
TEST(AttentionTest, GradientsOfFewPositionsAreThoseOfTheSamePositionsAmongOthers) {
  for (const auto& [queries, keys] : {std::pair{1, 1}, std::pair{3, 17}, std::pair{33, 64}}) {
    const Example x = example(queries, keys, DType::f32, {.causal_from = 5});
    // Keys that no query sees make it two tiles.
    const auto with_unseen = [](const LocalTensor& a) {
      return cat({a, ones({a.size(0), a.size(1), 64, a.size(3)})}, -2);
    };
    const LocalTensor seen =
        lt(arange(keys + 64), keys) * le(arange(keys + 64), (arange(queries) + 5).unsqueeze(-1));
    const AttentionForm masked{.scale = x.form.scale, .mask = seen.to(DType::boolean)};
    const LocalTensor key = with_unseen(x.key), value = with_unseen(x.value);
    const AttentionGradients few = attention_backward(
        x.gradient, x.query, x.key, x.value, attention(x.query, x.key, x.value, x.form), x.form);
    const AttentionGradients many = attention_backward(
        x.gradient, x.query, key, value, attention(x.query, key, value, masked), masked);
    EXPECT_TRUE(are_same_bits(few.query, many.query));
    EXPECT_TRUE(are_same_bits(few.key, many.key.narrow(-2, 0, keys).contiguous()));
    EXPECT_TRUE(are_same_bits(few.value, many.value.narrow(-2, 0, keys).contiguous()));
  }
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
