// Normal numbers that depend on seed, stream and element index only. Logarithm, sine and cosine are
// written out in plain arithmetic (and compiled without fused multiply-add): those of the C library
// and of CUDA differ in the last bit, and ranks on different machines must agree.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "dtrun/tensor/ops.h"
#include "host_device.h"
#include "philox.h"

namespace dtrun::tensors {

inline constexpr double kLn2 = 0.693147180559945309417;
inline constexpr double kTwoPi = 6.283185307179586476925;

/// Natural logarithm of a normal number: 2^e * m with m near 1, and ln m = 2 atanh((m-1)/(m+1)).
DTRUN_BOTH inline double logarithm(double x) {
  const std::uint64_t bits = std::bit_cast<std::uint64_t>(x);
  // Chooses e so that m lies in [sqrt(1/2), sqrt(2)).
  constexpr std::uint64_t kSqrtHalf = 0x3fe6a09e667f3bcd;
  const std::int64_t exponent = static_cast<std::int64_t>(bits - kSqrtHalf) >> 52;
  const double m = std::bit_cast<double>(bits - (static_cast<std::uint64_t>(exponent) << 52));
  const double s = (m - 1) / (m + 1);
  const double square = s * s;
  double series = 0;  // s^2 is under 0.03: the 12th term is under the last bit
  for (int n = 23; n >= 3; n -= 2) series = (series + 1.0 / n) * square;
  return static_cast<double>(exponent) * kLn2 + 2 * (s + s * series);
}

struct SinCos {
  double sin;
  double cos;
};

/// Of 2 pi `turns`, for turns in [0, 1). The Taylor series on an eighth of a turn to either side.
DTRUN_BOTH inline SinCos sin_cos_of_turns(double turns) {
  const std::int64_t quarter = std::lround(turns * 4);
  const double x = (turns - static_cast<double>(quarter) * 0.25) * kTwoPi;
  const double square = x * x;
  double sin_series = 0;
  double cos_series = 0;
  for (int n = 18; n >= 2; n -= 2) {
    cos_series = (1 + cos_series) * -square / (n * (n - 1));
    sin_series = (1 + sin_series) * -square / (n * (n + 1));
  }
  const double sin = x + x * sin_series;
  const double cos = 1 + cos_series;
  switch (quarter % 4) {
    case 0:
      return {sin, cos};
    case 1:
      return {cos, -sin};
    case 2:
      return {-sin, -cos};
    default:
      return {-cos, sin};
  }
}

/// 53 random bits in (0, 1].
DTRUN_BOTH inline double unit_number(std::uint32_t low, std::uint32_t high) {
  const std::uint64_t bits = (std::uint64_t{high} << 32 | low) >> 11;
  return static_cast<double>(bits + 1) * 0x1p-53;
}

/// Elements 2 * pair and 2 * pair + 1, by Box and Muller.
struct NormalPair {
  double even;
  double odd;
};

DTRUN_BOTH inline NormalPair normal_pair(RandomKey key, std::uint64_t pair) {
  const PhiloxCounter bits =
      philox({static_cast<std::uint32_t>(pair), static_cast<std::uint32_t>(pair >> 32),
              static_cast<std::uint32_t>(key.stream), static_cast<std::uint32_t>(key.stream >> 32)},
             {static_cast<std::uint32_t>(key.seed), static_cast<std::uint32_t>(key.seed >> 32)});
  const double radius = std::sqrt(-2 * logarithm(unit_number(bits[0], bits[1])));
  const double turns = 1 - unit_number(bits[2], bits[3]);
  const SinCos angle = sin_cos_of_turns(turns);
  return {radius * angle.cos, radius * angle.sin};
}

DTRUN_BOTH inline double normal_number(RandomKey key, std::int64_t index) {
  const NormalPair both = normal_pair(key, static_cast<std::uint64_t>(index) / 2);
  return index % 2 != 0 ? both.odd : both.even;
}

}  // namespace dtrun::tensors
