// Vector math: the transcendental functions, for f32 and f64, in loops that g++ turns into calls of
// libmvec's vector versions (docs/vector_math.md says why those). In a loop whose count is a
// multiple of kLanes every element goes through the same version: so its result does not depend on
// where it lies. Scalar libm where there is no libmvec.
#pragma once

#include <cmath>

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
DTRUN_VECTOR_FUNCTION(erf)
DTRUN_VECTOR_FUNCTION(erfc)
DTRUN_VECTOR_FUNCTION_OF_TWO(pow)
DTRUN_VECTOR_FUNCTION_OF_TWO(atan2)
#undef DTRUN_VECTOR_FUNCTION
#undef DTRUN_VECTOR_FUNCTION_OF_TWO
