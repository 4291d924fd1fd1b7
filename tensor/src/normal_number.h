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
#include "whole_double.h"

namespace dtrun::tensors {

inline constexpr double kLn2 = 0.693147180559945309417;
inline constexpr double kTwoPi = 6.283185307179586476925;

/// Natural logarithm of a normal number: 2^e * m with m near 1, and ln m = 2 atanh(s) with s =
/// (m-1)/(m+1). The polynomial in s^2, which is under 0.03, is that of Sun's fdlibm (e_log.c,
/// 1993).
DTRUN_BOTH inline double logarithm(double x) {
  const std::uint64_t bits = std::bit_cast<std::uint64_t>(x);
  // Chooses e so that m lies in [sqrt(1/2), sqrt(2)).
  constexpr std::uint64_t kSqrtHalf = 0x3fe6a09e667f3bcd;
  constexpr std::uint64_t kBias = 2048;  // an arithmetic shift of 64 bits has no AVX2 instruction
  const std::uint64_t exponent = ((bits - kSqrtHalf + (kBias << 52)) >> 52) - kBias;
  const double m = std::bit_cast<double>(bits - (exponent << 52));
  // A whole number from -1023 to 1 as a double, without a conversion.
  const double power =
      std::bit_cast<double>(exponent + std::bit_cast<std::uint64_t>(0x1.8p52)) - 0x1.8p52;
  const double s = (m - 1) / (m + 1);
  const double square = s * s;
  double series = 1.479819860511658591e-01;
  series = series * square + 1.531383769920937332e-01;
  series = series * square + 1.818357216161805012e-01;
  series = series * square + 2.222219843214978396e-01;
  series = series * square + 2.857142874366239149e-01;
  series = series * square + 3.999999999940941908e-01;
  series = series * square + 6.666666666666735130e-01;
  return power * kLn2 + (2 * s + s * (square * series));
}

struct SinCos {
  double sin;
  double cos;
};

/// Of 2 pi `turns`, for turns in [0, 1]: on an eighth of a turn to either side of a quarter, by the
/// polynomials of Sun's fdlibm (k_sin.c, k_cos.c, 1993).
DTRUN_BOTH inline SinCos sin_cos_of_turns(double turns) {
  constexpr double kRound = 0x1.8p52;  // added, it leaves whole numbers in the lowest bits
  const double shifted = turns * 4 + kRound;
  const std::uint64_t quarter = std::bit_cast<std::uint64_t>(shifted);
  const double x = (turns - (shifted - kRound) * 0.25) * kTwoPi;
  const double square = x * x;
  double sin = 1.58969099521155010221e-10;
  sin = sin * square + -2.50507602534068634195e-08;
  sin = sin * square + 2.75573137070700676789e-06;
  sin = sin * square + -1.98412698298579493134e-04;
  sin = sin * square + 8.33333333332248946124e-03;
  sin = sin * square + -1.66666666666666324348e-01;
  sin = x + x * (square * sin);
  double cos = -1.13596475577881948265e-11;
  cos = cos * square + 2.08757232129817482790e-09;
  cos = cos * square + -2.75573143513906633035e-07;
  cos = cos * square + 2.48015872894767294178e-05;
  cos = cos * square + -1.38888888888741095749e-03;
  cos = cos * square + 4.16666666666666019037e-02;
  cos = 1 - (0.5 * square - square * (square * cos));
  // Quarters 1 and 3 swap them; 2 and 3 turn the sine round, 1 and 2 the cosine.
  const bool swapped = (quarter & 1) != 0;
  const std::uint64_t sin_sign = (quarter & 2) << 62;
  const std::uint64_t cos_sign = ((quarter + 1) & 2) << 62;
  const std::uint64_t sin_bits = std::bit_cast<std::uint64_t>(swapped ? cos : sin);
  const std::uint64_t cos_bits = std::bit_cast<std::uint64_t>(swapped ? sin : cos);
  return {std::bit_cast<double>(sin_bits ^ sin_sign), std::bit_cast<double>(cos_bits ^ cos_sign)};
}

/// 53 random bits in (0, 1].
DTRUN_BOTH inline double unit_number(std::uint64_t bits) {
  return whole_double((bits >> 11) + 1) * 0x1p-53;
}

/// Elements 2 * pair and 2 * pair + 1, by Box and Muller.
struct NormalPair {
  double even;
  double odd;
};

/// @param first, second 64 random bits each
DTRUN_BOTH inline NormalPair normal_pair_of_bits(std::uint64_t first, std::uint64_t second) {
  const double radius = std::sqrt(-2 * logarithm(unit_number(first)));
  const SinCos angle = sin_cos_of_turns(1 - unit_number(second));
  return {radius * angle.cos, radius * angle.sin};
}

DTRUN_BOTH inline NormalPair normal_pair(RandomKey key, std::uint64_t pair) {
  const PhiloxCounter bits =
      philox({static_cast<std::uint32_t>(pair), static_cast<std::uint32_t>(pair >> 32),
              static_cast<std::uint32_t>(key.stream), static_cast<std::uint32_t>(key.stream >> 32)},
             {static_cast<std::uint32_t>(key.seed), static_cast<std::uint32_t>(key.seed >> 32)});
  return normal_pair_of_bits(std::uint64_t{bits[1]} << 32 | bits[0],
                             std::uint64_t{bits[3]} << 32 | bits[2]);
}

DTRUN_BOTH inline double normal_number(RandomKey key, std::int64_t index) {
  const NormalPair both = normal_pair(key, static_cast<std::uint64_t>(index) / 2);
  return index % 2 != 0 ? both.odd : both.even;
}

}  // namespace dtrun::tensors
