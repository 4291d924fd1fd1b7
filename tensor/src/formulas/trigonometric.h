// Sines and their relatives, and powers.
#pragma once

#include <type_traits>

#include "arithmetic.h"
#include "formulas/transcendental.h"

namespace dtrun::tensors::formulas {
namespace {

struct Sine {
  template <typename T>
  DTRUN_BOTH T operator()(T x) const {
    return vector_math::sin(x);
  }
};
struct Cosine {
  template <typename T>
  DTRUN_BOTH T operator()(T x) const {
    return vector_math::cos(x);
  }
};
struct Tangent {
  template <typename T>
  DTRUN_BOTH T operator()(T x) const {
    return vector_math::tan(x);
  }
};
struct HyperbolicSine {
  template <typename T>
  DTRUN_BOTH T operator()(T x) const {
    return vector_math::sinh(x);
  }
};
struct HyperbolicCosine {
  template <typename T>
  DTRUN_BOTH T operator()(T x) const {
    return vector_math::cosh(x);
  }
};
struct HyperbolicTangent {
  template <typename T>
  DTRUN_BOTH T operator()(T x) const {
    return vector_math::tanh(x);
  }
};
struct ArcSine {
  template <typename T>
  DTRUN_BOTH T operator()(T x) const {
    return vector_math::asin(x);
  }
};
struct ArcCosine {
  template <typename T>
  DTRUN_BOTH T operator()(T x) const {
    return vector_math::acos(x);
  }
};
struct ArcTangent {
  template <typename T>
  DTRUN_BOTH T operator()(T x) const {
    return vector_math::atan(x);
  }
};
struct AreaSine {
  template <typename T>
  DTRUN_BOTH T operator()(T x) const {
    return vector_math::asinh(x);
  }
};
struct AreaCosine {
  template <typename T>
  DTRUN_BOTH T operator()(T x) const {
    return vector_math::acosh(x);
  }
};
struct AreaTangent {
  template <typename T>
  DTRUN_BOTH T operator()(T x) const {
    return vector_math::atanh(x);
  }
};
struct ArcTangentOfTwo {
  template <typename T>
  DTRUN_BOTH T operator()(T y, T x) const {
    return vector_math::atan2(y, x);
  }
};

/// By squares, which wrap; a negative power of an integer is 0, but for 1 and -1.
template <typename T>
DTRUN_BOTH T integer_power(T base, T exponent) {
  if (exponent < 0) return base == 1 ? T{1} : base != -1 ? T{0} : exponent % 2 == 0 ? T{1} : T{-1};
  T result = 1;
  for (; exponent != 0; exponent /= 2) {
    if (exponent % 2 != 0) result = Multiply::apply(result, base);
    base = Multiply::apply(base, base);
  }
  return result;
}

struct Power {
  template <typename T>
  DTRUN_BOTH T operator()(T base, T exponent) const {
    if constexpr (std::is_integral_v<T>) return integer_power(base, exponent);
    if constexpr (!std::is_integral_v<T>) return vector_math::pow(base, exponent);
  }
};

}  // namespace
}  // namespace dtrun::tensors::formulas
