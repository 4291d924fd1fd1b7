// All 65,536 values of both half types, and what lies between them.
#include "half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace dtrun::tensors {
namespace {

/// What the bits mean, by the definition: sign, exponent, fraction.
double value_by_definition(int bits, int fraction_bits, int bias) {
  const int exponent_bits = 15 - fraction_bits;
  const int exponent = (bits & 0x7fff) >> fraction_bits;
  const int fraction = bits & ((1 << fraction_bits) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1) {
    return fraction != 0 ? std::nan("") : sign * std::numeric_limits<double>::infinity();
  }
  const double scale = std::ldexp(1.0, -fraction_bits);
  if (exponent == 0) return sign * std::ldexp(fraction * scale, 1 - bias);
  return sign * std::ldexp(1 + fraction * scale, exponent - bias);
}

template <typename Half>
struct Traits;
template <>
struct Traits<Float16> {
  static constexpr int kFractionBits = 10;
  static constexpr int kBias = 15;
  static constexpr int kInfinity = 0x7c00;
  static Float16 from(float value) { return to_float16(value); }
};
template <>
struct Traits<BFloat16> {
  static constexpr int kFractionBits = 7;
  static constexpr int kBias = 127;
  static constexpr int kInfinity = 0x7f80;
  static BFloat16 from(float value) { return to_bfloat16(value); }
};

template <typename Half>
class HalfTest : public ::testing::Test {};
using Halves = ::testing::Types<Float16, BFloat16>;
TYPED_TEST_SUITE(HalfTest, Halves);

TYPED_TEST(HalfTest, EveryValueReadsAsDefinedAndComesBack) {
  using T = Traits<TypeParam>;
  for (int bits = 0; bits < 65536; ++bits) {
    const TypeParam half{static_cast<std::uint16_t>(bits)};
    const float value = to_float(half);
    const double expected = value_by_definition(bits, T::kFractionBits, T::kBias);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(value)) << bits;
      ASSERT_TRUE(std::isnan(to_float(T::from(value)))) << bits;
      continue;
    }
    ASSERT_EQ(static_cast<double>(value), expected) << bits;
    ASSERT_EQ(std::signbit(value), (bits & 0x8000) != 0) << bits;
    ASSERT_EQ(T::from(value).bits, bits);
  }
}

TYPED_TEST(HalfTest, BetweenNeighboursTheNearestIsTakenAndTiesGoToTheEvenOne) {
  using T = Traits<TypeParam>;
  for (int bits = 0; bits < T::kInfinity; ++bits) {
    const double low = value_by_definition(bits, T::kFractionBits, T::kBias);
    // Beyond the largest value the next one would be where infinity's bits are.
    const double high =
        bits + 1 < T::kInfinity
            ? value_by_definition(bits + 1, T::kFractionBits, T::kBias)
            : low + (low - value_by_definition(bits - 1, T::kFractionBits, T::kBias));
    const float middle = static_cast<float>((low + high) / 2);
    const int even = bits % 2 == 0 ? bits : bits + 1;
    ASSERT_EQ(T::from(middle).bits, even) << bits;
    ASSERT_EQ(T::from(std::nextafter(middle, 0.0f)).bits, bits);
    ASSERT_EQ(T::from(std::nextafter(middle, std::numeric_limits<float>::infinity())).bits,
              bits + 1);
    ASSERT_EQ(T::from(-middle).bits, even | 0x8000);
  }
}

TYPED_TEST(HalfTest, WhatIsTooLargeIsInfiniteAndWhatIsTooSmallIsZeroWithItsSign) {
  using T = Traits<TypeParam>;
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(T::from(infinity).bits, T::kInfinity);
  EXPECT_EQ(T::from(-infinity).bits, T::kInfinity | 0x8000);
  EXPECT_EQ(T::from(std::numeric_limits<float>::max()).bits, T::kInfinity);
  EXPECT_EQ(T::from(std::numeric_limits<float>::denorm_min()).bits, 0);
  EXPECT_EQ(T::from(-std::numeric_limits<float>::denorm_min()).bits, 0x8000);
  EXPECT_EQ(T::from(-0.0f).bits, 0x8000);
}

}  // namespace
}  // namespace dtrun::tensors
