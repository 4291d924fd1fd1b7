#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>

#include "dtrun/base/error.h"
#include "dtrun/tensor/ops.h"
#include "dtrun/tensor/ops/pointwise.h"
#include "dtrun/tensor/ops/random.h"
#include "dtrun/tensor/threads.h"
#include "kernels/near_normal.h"
#include "kernels/random_kernel.h"
#include "normal_number.h"
#include "philox.h"
#include "tensor/all_dtypes.h"

namespace dtrun::tensors {
namespace {

TEST(PhiloxTest, GivesThePublishedKnownAnswers) {
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}),
            (PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
            (PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(RandomTest, ElementsAreBoxAndMullersOfTheirPairsBits) {
  const RandomKey key{.seed = 0x123456789abcdef0, .stream = 3};
  const std::vector<double> values = randn({1000}, key, {DType::f64}).to_vector();
  for (std::uint32_t pair = 0; pair < 500; ++pair) {
    const PhiloxCounter bits = philox({pair, 0, 3, 0}, {0x9abcdef0, 0x12345678});
    const auto unit = [&bits](std::size_t k) {
      const std::uint64_t both = std::uint64_t{bits[k + 1]} << 32 | bits[k];
      return (static_cast<double>(both >> 11) + 1) * 0x1p-53;
    };
    const double radius = std::sqrt(-2 * std::log(unit(0)));
    const double angle = 2 * std::numbers::pi * (1 - unit(2));
    // Relative to the radius: the angle itself is rounded here.
    ASSERT_NEAR(values[2 * pair], radius * std::cos(angle), 2e-15 * (1 + radius));
    ASSERT_NEAR(values[2 * pair + 1], radius * std::sin(angle), 2e-15 * (1 + radius));
  }
}

TEST(RandomTest, TheFirstNumbersNeverChange) {
  const std::vector<double> values = randn({3}, {.seed = 42}, {DType::f64}).to_vector();
  EXPECT_EQ(values, (std::vector<double>{-0x1.54ac03c1a0331p-1, -0x1.0938db380d75fp+0,
                                         -0x1.6f135c80fefcbp+0}));
}

TEST(RandomTest, VectorsHoldTheBitsOfSingleNumbers) {
  const RandomKey key{.seed = 77, .stream = std::uint64_t{1} << 40};
  const std::vector<double> values = randn({3001}, key, {DType::f64}).to_vector();
  for (std::int64_t i = 0; i < 3001; ++i) {
    ASSERT_EQ(values[static_cast<std::size_t>(i)], normal_number(key, i)) << i;
  }
  // The pairs' number takes more than 32 bits.
  constexpr std::int64_t kFar = (std::int64_t{1} << 33) + 1;
  const std::vector<double> far =
      randn_block({2 * kFar}, {kFar}, {100}, key, {DType::f64}).to_vector();
  for (std::int64_t i = 0; i < 100; ++i) {
    ASSERT_EQ(far[static_cast<std::size_t>(i)], normal_number(key, kFar + i)) << i;
  }
}

TEST(RandomTest, DropoutIsAProductWithItsMask) {
  const RandomKey key{.seed = 4};
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
    const DType compute = dtype == DType::f64 ? DType::f64 : DType::f32;
    const LocalTensor a = randn({700, 6}, {.seed = 3}).to(dtype).transpose(0, 1);
    const RandomBlock block{{8, 900}, {1, 101}, {6, 700}};
    const LocalTensor mask = dropout_mask(0.3, block, key, {compute});
    EXPECT_TRUE(equal(dropout(a, 0.3, block, key), mul(mask, a.to(compute)).to(dtype)));
  }
  EXPECT_THROW(dropout(ones({3}), 0.3, RandomBlock::whole({4}), key), base::Error);
  EXPECT_THROW(dropout(arange(3), 0.3, RandomBlock::whole({3}), key), base::Error);
}

TEST(RandomTest, ABlockHoldsTheValuesThatTheWholeHasThere) {
  const Shape global = {5, 7, 9};
  const RandomKey key{.seed = 11, .stream = 2};
  for (const DType dtype : kAllDTypes) {
    const LocalTensor whole = randn(global, key, {dtype});
    for (const auto& [offsets, shape] :
         std::vector<std::pair<Shape, Shape>>{{{0, 0, 0}, {5, 7, 9}},
                                              {{1, 2, 3}, {3, 4, 5}},
                                              {{4, 6, 8}, {1, 1, 1}},
                                              {{0, 3, 0}, {5, 1, 9}},
                                              {{5, 0, 0}, {0, 7, 9}},
                                              {{2, 0, 9}, {1, 7, 0}}}) {
      const LocalTensor part = whole.narrow(0, offsets[0], shape[0])
                                   .narrow(1, offsets[1], shape[1])
                                   .narrow(2, offsets[2], shape[2]);
      EXPECT_TRUE(equal(randn_block(global, offsets, shape, key, {dtype}), part))
          << dtype_name(dtype) << shape_to_string(shape);
    }
  }
}

TEST(RandomTest, NarrowerTypesHoldTheSameNumbersRounded) {
  const LocalTensor exact = randn({999}, {.seed = 5}, {DType::f64});
  for (const DType dtype : kAllDTypes) {
    EXPECT_TRUE(equal(randn({999}, {.seed = 5}, {dtype}), exact.to(dtype)));
  }
  EXPECT_EQ(randn({}, {.seed = 5}, {DType::f64}).item(), exact[0].item());
}

/// Pairs of 64 random bits: what is next to the ends, to quarters and eighths of a turn and to
/// powers of two, each beside each, and then many others.
std::vector<std::uint64_t> bits_of_pairs(std::int64_t others) {
  std::vector<std::uint64_t> edges;
  for (std::uint64_t eighth = 0; eighth < 8; ++eighth) {
    for (const std::uint64_t step : {0u, 1u, 2u, 3u, 1000u}) {
      edges.push_back((eighth << 61) + (step << 11));
      edges.push_back((eighth << 61) - (step << 11));
    }
  }
  for (int k = 11; k < 64; ++k) edges.push_back(std::uint64_t{1} << k);
  std::vector<std::uint64_t> bits;
  for (const std::uint64_t first : edges) {
    for (const std::uint64_t second : edges) bits.insert(bits.end(), {first, second});
  }
  std::vector<std::uint64_t> room(static_cast<std::size_t>(2 * others + kRandomRoom));
  const std::uint64_t* const drawn = random_bits(room.data(), {.seed = 7}, 0, 2 * others);
  bits.insert(bits.end(), drawn, drawn + 2 * others);
  return bits;
}

TEST(RandomTest, NearNumbersAreWithinTheirBoundOfTheExactOnes) {
  const std::vector<std::uint64_t> bits = bits_of_pairs(1 << 20);
  for (std::size_t begin = 0; begin < bits.size(); begin += 2 * kMostNearPairs) {
    const auto count = std::min<std::size_t>(2 * kMostNearPairs, bits.size() - begin);
    double near[2 * kMostNearPairs], exact[2 * kMostNearPairs];
    float rounded[2 * kMostNearPairs];
    const auto pairs = static_cast<std::int64_t>(count / 2);
    near_normal_numbers(near, bits.data() + begin, pairs);
    normal_pairs(exact, bits.data() + begin, pairs);
    normal_pairs(rounded, bits.data() + begin, pairs);
    for (std::size_t i = 0; i < count; ++i) {
      ASSERT_LE(std::abs(near[i] - exact[i]), 0x1p-42 * std::abs(exact[i])) << begin + i;
      ASSERT_EQ(std::signbit(near[i]), std::signbit(exact[i])) << begin + i;
      ASSERT_EQ(rounded[i], static_cast<float>(exact[i])) << begin + i;
    }
  }
}

// Bits whose exact numbers are so close to the middle of two floats that the near ones lie beyond
// it.
TEST(RandomTest, AFloatIsTheExactNumberRoundedWhereTheNearOneRoundsOtherwise) {
  const std::uint64_t bits[] = {0xac27882e17041306, 0x817cd717cb8aeea8, 0x1a03114e6179199c,
                                0x6f92f982e31d5f85, 0xe66f2d14815bc836, 0x2e101ba4cdc9a775,
                                0xc7083a769bbd0076, 0x0783520bf9fe2268};
  double exact[8], near[8];
  float rounded[8];
  normal_pairs(exact, bits, 4);
  near_normal_numbers(near, bits, 4);
  normal_pairs(rounded, bits, 4);
  int doubtful = 0;
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(rounded[i], static_cast<float>(exact[i])) << i;
    doubtful += rounds_doubtfully(near[i]) ? 1 : 0;
  }
  EXPECT_EQ(doubtful, 4);
}

TEST(RandomTest, DoubtIsNearTheMiddleOfTwoFloats) {
  for (const double size : {0x1p-76, 0.5, -1.0, 1.75, 8.0}) {
    EXPECT_FALSE(rounds_doubtfully(size));
    const auto rounded = static_cast<float>(size);
    const double middle = (size + std::nextafter(rounded, 2 * rounded)) / 2;
    for (const double side : {1.0, -1.0}) {
      EXPECT_TRUE(rounds_doubtfully(middle * (1 + side * 0x1p-41)));
      EXPECT_FALSE(rounds_doubtfully(middle * (1 + side * 0x1p-39)));
    }
  }
  EXPECT_FALSE(rounds_doubtfully(0.0));
  EXPECT_FALSE(rounds_doubtfully(-0.0));
}

TEST(RandomTest, SeedsAndStreamsGiveDifferentNumbers) {
  const LocalTensor one = randn({4}, {.seed = 1, .stream = 0});
  EXPECT_TRUE(equal(one, randn({4}, {.seed = 1, .stream = 0})));
  for (const RandomKey key : {RandomKey{2, 0}, RandomKey{1, 1}, RandomKey{1ull << 32 | 1, 0}}) {
    EXPECT_FALSE(equal(one, randn({4}, key)));
  }
}

TEST(RandomTest, TheNumbersAreStandardNormal) {
  constexpr std::int64_t kCount = 1 << 20;
  const std::vector<double> values = randn({kCount}, {.seed = 99}, {DType::f64}).to_vector();
  double mean = 0;
  double square = 0;
  double cube = 0;
  double fourth = 0;
  double neighbours = 0;
  double tail = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double x = values[i];
    mean += x / kCount;
    square += x * x / kCount;
    cube += x * x * x / kCount;
    fourth += x * x * x * x / kCount;
    if (i > 0) neighbours += x * values[i - 1] / kCount;
    tail += (std::abs(x) > 1.959963984540054) * 1.0 / kCount;
  }
  // Five standard errors of each.
  const double error = 5 / std::sqrt(static_cast<double>(kCount));
  EXPECT_NEAR(mean, 0, error);
  EXPECT_NEAR(square, 1, error * std::sqrt(2.0));
  EXPECT_NEAR(cube, 0, error * std::sqrt(15.0));
  EXPECT_NEAR(fourth, 3, error * std::sqrt(96.0));
  EXPECT_NEAR(neighbours, 0, error);
  EXPECT_NEAR(tail, 0.05, error * std::sqrt(0.05 * 0.95));
}

/// rand, randint and dropout's mask, of any block.
std::vector<std::function<LocalTensor(const RandomBlock&)>> uniform_functions() {
  const RandomKey key{.seed = 11, .stream = 2};
  return {[key](const RandomBlock& block) { return rand_block(block, key, {DType::f64}); },
          [key](const RandomBlock& block) { return rand_block(block, key, {DType::bf16}); },
          [key](const RandomBlock& block) { return randint_block(-3, 40, block, key); },
          [key](const RandomBlock& block) { return dropout_mask(0.25, block, key); }};
}

TEST(RandomTest, ABlockOfUniformNumbersHoldsWhatTheWholeHasThere) {
  const Shape global = {5, 7, 900};
  for (const auto& function : uniform_functions()) {
    const LocalTensor whole = function(RandomBlock::whole(global));
    for (const auto& [offsets, shape] : std::vector<std::pair<Shape, Shape>>{
             {{1, 2, 3}, {3, 4, 601}}, {{4, 6, 899}, {1, 1, 1}}, {{5, 0, 0}, {0, 7, 900}}}) {
      const LocalTensor part = whole.narrow(0, offsets[0], shape[0])
                                   .narrow(1, offsets[1], shape[1])
                                   .narrow(2, offsets[2], shape[2]);
      EXPECT_TRUE(equal(function({global, offsets, shape}), part)) << shape_to_string(shape);
    }
    const int before = num_threads();
    set_num_threads(3);
    EXPECT_TRUE(equal(function(RandomBlock::whole(global)), whole));
    set_num_threads(before);
  }
}

TEST(RandomTest, TheBitsAreThoseOfAnyNumberOfThreads) {
  const RandomKey key{.seed = 11, .stream = 2};
  const Shape global = {70, 5003};  // many blocks, and a piece of one
  auto functions = uniform_functions();
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16}) {
    functions.emplace_back([=](const RandomBlock& block) {
      return randn_block(block.global_shape, block.offsets, block.shape, key, {dtype});
    });
    functions.emplace_back([=, a = randn(global, {.seed = 3}, {dtype})](const RandomBlock& block) {
      return dropout(a, 0.3, block, key);
    });
  }
  const int before = num_threads();
  for (const auto& function : functions) {
    set_num_threads(1);
    const LocalTensor alone = function(RandomBlock::whole(global));
    for (const int threads : {2, 4}) {
      set_num_threads(threads);
      EXPECT_TRUE(equal(function(RandomBlock::whole(global)), alone)) << threads << " threads";
    }
  }
  set_num_threads(before);
}

TEST(RandomTest, UniformNumbersAreUniformAndNeverOne) {
  constexpr std::int64_t kCount = 1 << 18;
  const double error = 5 / std::sqrt(static_cast<double>(kCount));
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
    const std::vector<double> values =
        rand_block(RandomBlock::whole({kCount}), {.seed = 7}, {dtype}).to_vector();
    double mean = 0, square = 0;
    for (const double x : values) {
      ASSERT_TRUE(x >= 0 && x < 1) << x;
      mean += x / kCount;
      square += x * x / kCount;
    }
    const double step = dtype == DType::bf16 ? 0x1p-8 : dtype == DType::f16 ? 0x1p-11 : 0;
    EXPECT_NEAR(mean, 0.5 - step / 2, error * 0.3);
    EXPECT_NEAR(square, 1.0 / 3 - step / 2, error * 0.3);
  }
  std::vector<std::int64_t> counts(6);
  for (const std::int64_t x :
       randint_block(-2, 4, RandomBlock::whole({kCount}), {.seed = 3}).to_vector_i64()) {
    ASSERT_TRUE(x >= -2 && x < 4) << x;
    ++counts[static_cast<std::size_t>(x + 2)];
  }
  for (const std::int64_t count : counts) EXPECT_NEAR(count * 1.0 / kCount, 1.0 / 6, error * 0.4);
  EXPECT_NEAR(
      sum(dropout_mask(0.25, RandomBlock::whole({kCount}), {.seed = 5}), {}).item() / kCount, 1,
      error);
}

TEST(RandomTest, UniformNumbersNeverChange) {
  const RandomBlock three = RandomBlock::whole({3});
  EXPECT_EQ(
      rand_block(three, {.seed = 42}, {DType::f64}).to_vector(),
      (std::vector<double>{0x1.dfd524ee73abcp-2, 0x1.5d0acf5c4afd4p-2, 0x1.4ee9b3f7f36c8p-2}));
  EXPECT_EQ(randint_block(0, 1000, three, {.seed = 42}).to_vector_i64(),
            (std::vector<std::int64_t>{468, 340, 327}));
  EXPECT_EQ(randperm(5, {.seed = 42}).to_vector_i64(), (std::vector<std::int64_t>{2, 1, 3, 0, 4}));
  const std::vector<double> exact = rand_block(three, {.seed = 42}, {DType::f64}).to_vector();
  const std::vector<double> single = rand_block(three, {.seed = 42}).to_vector();
  for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(single[i], exact[i], 0x1p-24);
}

TEST(RandomTest, BitsInLanesAreThoseOfEachPair) {
  for (const std::int64_t first : {std::int64_t{0}, std::int64_t{7}, std::int64_t{1} << 33}) {
    for (const std::int64_t count : {1, 2, 31, 255, 256, 257, 700}) {
      std::vector<std::uint64_t> room(static_cast<std::size_t>(count + kRandomRoom));
      const RandomKey key{.seed = 0x123456789abcdef0, .stream = 0x300000005};
      const std::uint64_t* const bits = random_bits(room.data(), key, first, count);
      for (std::int64_t i = 0; i < count; ++i) {
        const auto pair = static_cast<std::uint64_t>(first + i) / 2;
        const PhiloxCounter words =
            philox({static_cast<std::uint32_t>(pair), static_cast<std::uint32_t>(pair >> 32), 5, 3},
                   {0x9abcdef0, 0x12345678});
        const std::size_t half = (first + i) % 2 == 0 ? 0 : 2;
        ASSERT_EQ(bits[i], std::uint64_t{words[half + 1]} << 32 | words[half]) << first << " " << i;
      }
    }
  }
}

TEST(RandomTest, APermutationHasEachNumberOnce) {
  const LocalTensor order = randperm(1000, {.seed = 1});
  std::vector<std::int64_t> sorted = order.to_vector_i64();
  std::ranges::sort(sorted);
  EXPECT_EQ(sorted, arange(1000).to_vector_i64());
  EXPECT_FALSE(equal(order, randperm(1000, {.seed = 2})));
  EXPECT_EQ(randperm(0, {}).numel(), 0);
}

TEST(RandomTest, WhatCannotBeDrawnIsAnError) {
  const RandomBlock two = RandomBlock::whole({2});
  EXPECT_THROW(rand_block(two, {}, {DType::i64}), base::Error);
  EXPECT_THROW(randint_block(3, 3, two, {}), base::Error);
  EXPECT_THROW(randperm(-1, {}), base::Error);
  EXPECT_THROW(rand_block(two, {}, {DType::f32, Device{DeviceType::cuda, 0}}), base::Error);
}

TEST(RandomTest, ABlockOutsideTheWholeIsAnError) {
  EXPECT_THROW(randn_block({4}, {3}, {2}, {}), base::Error);
  EXPECT_THROW(randn_block({4}, {-1}, {2}, {}), base::Error);
  EXPECT_THROW(randn_block({4}, {0, 0}, {2}, {}), base::Error);
}

}  // namespace
}  // namespace dtrun::tensors
