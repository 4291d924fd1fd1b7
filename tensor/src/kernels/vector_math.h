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

/// 1.3 ulp. N. Juffa's polynomials: of x near 0, of the exponent of 1 - erf(x) elsewhere.
inline float erf(float x) {
  const float size = std::fabs(x);
  const float square = x * x;
  float far = -1.72853470e-5f * size + 3.83197126e-4f;
  const float middle = -3.88396438e-3f * size + 2.42546219e-2f;
  far = far * square + middle;
  far = far * size + -1.06777877e-1f;
  far = far * size + -6.34846687e-1f;
  far = far * size + -1.28717512e-1f;
  far = far * size + -size;
  far = std::copysign(1.0f - exp_of_negative(far), x);
  float near = -5.96761703e-4f;
  near = near * square + 4.99119423e-3f;
  near = near * square + -2.67681349e-2f;
  near = near * square + 1.12819925e-1f;
  near = near * square + -3.76125336e-1f;
  near = near * square + 1.28379166e-1f;
  near = near * x + x;
  return size > 0.927734375f ? far : near;
}
inline double erf(double x) {
  return ::erf(x);
}

}  // namespace dtrun::tensors::vector_math
