// Vector math: the transcendental functions, for f32 and f64, in loops that g++ turns into calls of
// libmvec's vector versions (docs/vector_math.md says why those). In a loop whose count is a
// multiple of kLanes every element goes through the same version: so its result does not depend on
// where it lies. Scalar libm where there is no libmvec.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__clang__) && \
    !defined(__SANITIZE_THREAD__) && defined(__OPTIMIZE__)
#if __GLIBC_PREREQ(2, 35)
#define DTRUN_VECTOR_VERSIONS __attribute__((simd("notinbranch"), const))
#endif
#endif
#ifndef DTRUN_VECTOR_VERSIONS
#define DTRUN_VECTOR_VERSIONS
#endif

// libm's functions once more: what is added is that they have vector versions.
#define DTRUN_VECTOR_FUNCTION(name)                               \
  extern "C" DTRUN_VECTOR_VERSIONS float name##f(float) noexcept; \
  extern "C" DTRUN_VECTOR_VERSIONS double name(double) noexcept;  \
  namespace dtrun::tensors::vector_math {                         \
  inline float name(float x) {                                    \
    return ::name##f(x);                                          \
  }                                                               \
  inline double name(double x) {                                  \
    return ::name(x);                                             \
  }                                                               \
  }
#define DTRUN_VECTOR_FUNCTION_OF_TWO(name)                               \
  extern "C" DTRUN_VECTOR_VERSIONS float name##f(float, float) noexcept; \
  extern "C" DTRUN_VECTOR_VERSIONS double name(double, double) noexcept; \
  namespace dtrun::tensors::vector_math {                                \
  inline float name(float x, float y) {                                  \
    return ::name##f(x, y);                                              \
  }                                                                      \
  inline double name(double x, double y) {                               \
    return ::name(x, y);                                                 \
  }                                                                      \
  }
DTRUN_VECTOR_FUNCTION(exp)
DTRUN_VECTOR_FUNCTION(log)
DTRUN_VECTOR_FUNCTION(log2)
DTRUN_VECTOR_FUNCTION(log10)
DTRUN_VECTOR_FUNCTION(log1p)
DTRUN_VECTOR_FUNCTION(expm1)
DTRUN_VECTOR_FUNCTION(sin)
DTRUN_VECTOR_FUNCTION(cos)
DTRUN_VECTOR_FUNCTION(tan)
DTRUN_VECTOR_FUNCTION(sinh)
DTRUN_VECTOR_FUNCTION(cosh)
DTRUN_VECTOR_FUNCTION(tanh)
DTRUN_VECTOR_FUNCTION(asin)
DTRUN_VECTOR_FUNCTION(acos)
DTRUN_VECTOR_FUNCTION(atan)
DTRUN_VECTOR_FUNCTION(asinh)
DTRUN_VECTOR_FUNCTION(acosh)
DTRUN_VECTOR_FUNCTION(atanh)
DTRUN_VECTOR_FUNCTION(erfc)
DTRUN_VECTOR_FUNCTION_OF_TWO(pow)
DTRUN_VECTOR_FUNCTION_OF_TWO(atan2)
#undef DTRUN_VECTOR_FUNCTION
#undef DTRUN_VECTOR_FUNCTION_OF_TWO

extern "C" DTRUN_VECTOR_VERSIONS double erf(double) noexcept;

namespace dtrun::tensors::vector_math {

// Two of our own, which take less than two thirds of libmvec's time where a product and a sum are
// one instruction: compile what uses them with -ffp-contract=fast.

/// e to the power x, for x up to 0 and a little more: 2 ulp; what is less than the smallest normal
/// number is 0.
inline float exp_of_negative(float x) {
  constexpr float kRound = 0x1.8p23f;  // added, it leaves whole numbers in the lowest bits
  const float shifted = x * 1.44269504f + kRound;
  const float whole = shifted - kRound;
  const float upper = x - whole * 0x1.62e4p-1f;  // ln 2 in two parts
  const float rest = upper - whole * 0x1.7f7d1cp-20f;
  float power = 0x1.6c5f3ep-10f;
  power = power * rest + 0x1.1239dep-7f;
  power = power * rest + 0x1.5554eep-5f;
  power = power * rest + 0x1.55553ap-3f;
  power = power * rest + 0x1.fffff8p-2f;
  power = power * rest + 1.0f;
  power = power * rest + 1.0f;
  const std::uint32_t exponent = std::bit_cast<std::uint32_t>(shifted) << 23;
  const float scaled = std::bit_cast<float>(std::bit_cast<std::uint32_t>(power) + exponent);
  // A nan keeps its bits: the shift would make a number of some.
  const float kept = x == x ? scaled : x;
  return x < -87.3f ? 0.0f : kept;
}
inline double exp_of_negative(double x) {
  return ::exp(x);
}

/// 2.8 ulp; 3.6 where nothing is fused. x times a quotient of polynomials of its square, the
/// nearest to erf(x) / x up to 4 by Lawson's weights (Trans. AMS, 1961). A quarter is taken from
/// the quotient beforehand: so it is small where erf nears 1, which it never exceeds (all floats
/// were tried).
inline float erf(float x) {
  constexpr float kMost = 3.96875f;  // whose erf is 1
  x = kMost < x ? kMost : x;
  x = x < -kMost ? -kMost : x;
  const float square = x * x;
  float above = -0x1.ee7a2cp-18f;
  above = above * square + -0x1.8cde8ap-17f;
  above = above * square + 0x1.560776p-14f;
  above = above * square + 0x1.8d8bb4p-6f;
  above = above * square + 0x1.13c9ecp-4f;
  above = above * square + 0x1.c1baeap-1f;
  float below = 0x1.39e81cp-15f;
  below = below * square + 0x1.36cabap-10f;
  below = below * square + 0x1.f2502ep-7f;
  below = below * square + 0x1.d87986p-4f;
  below = below * square + 0x1.027cc2p-1f;
  below = below * square + 1.0f;
  return x * (above / below) + 0.25f * x;
}
inline double erf(double x) {
  return ::erf(x);
}

}  // namespace dtrun::tensors::vector_math
