// Quotients and bits, element by element; and the functions of arithmetic.h, as objects. In an
// anonymous namespace, as all formulas: units are compiled with flags of their own.
#pragma once

#include <cmath>
#include <type_traits>

#include "arithmetic.h"

namespace dtrun::tensors::formulas {
namespace {

/// arithmetic.h's functions, as objects. kWaitsForMemory: kernels/map_kernel.h.
template <typename Op>
struct Binary {
  static constexpr bool kWaitsForMemory = true;
  template <typename T>
  DTRUN_BOTH T operator()(T a, T b) const {
    return Op::apply(a, b);
  }
};

template <typename T>
constexpr int kBits = static_cast<int>(8 * sizeof(T));

/// Truncates; the lowest number by -1 wraps.
template <typename T>
DTRUN_BOTH T quotient(T a, T b) {
  return b == -1 ? static_cast<T>(-static_cast<std::make_unsigned_t<T>>(a)) : a / b;
}
template <typename T>
DTRUN_BOTH T rest(T a, T b) {
  return b == -1 ? T{0} : a % b;
}

// Divisors of integers are not 0.

// Python's rounding, and what PyTorch makes of quotients that are off by one in the last bit.
struct FloorDivide {
  template <typename T>
  DTRUN_BOTH T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {
      const T whole = quotient(a, b);
      return rest(a, b) != 0 && (a < 0) != (b < 0) ? whole - 1 : whole;
    } else {
      if (b == 0) return a / b;
      const T mod = std::fmod(a, b);
      T whole = (a - mod) / b;
      if (mod != 0 && (b < 0) != (mod < 0)) whole -= 1;
      if (whole == 0) return std::copysign(T{0}, a / b);
      const T floored = std::floor(whole);
      return whole - floored > T{0.5} ? floored + 1 : floored;
    }
  }
};

struct TruncDivide {
  template <typename T>
  DTRUN_BOTH T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) return quotient(a, b);
    if constexpr (!std::is_integral_v<T>) return std::trunc(a / b);
  }
};

/// The sign of the divisor.
struct Remainder {
  template <typename T>
  DTRUN_BOTH T operator()(T a, T b) const {
    T mod;
    if constexpr (std::is_integral_v<T>) {
      mod = rest(a, b);
    } else {
      mod = std::fmod(a, b);
    }
    return mod != 0 && (mod < 0) != (b < 0) ? mod + b : mod;
  }
};

/// The sign of the dividend.
struct Fmod {
  template <typename T>
  DTRUN_BOTH T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) return rest(a, b);
    if constexpr (!std::is_integral_v<T>) return std::fmod(a, b);
  }
};

struct BitNot {
  template <typename T>
  DTRUN_BOTH T operator()(T a) const {
    return static_cast<T>(~a);
  }
  DTRUN_BOTH bool operator()(bool a) const { return !a; }
};

struct ShiftLeft {
  template <typename T>
  DTRUN_BOTH T operator()(T a, T b) const {
    const bool defined = b >= 0 && b < kBits<T>;
    const auto bits = static_cast<std::make_unsigned_t<T>>(a);
    return defined ? static_cast<T>(bits << (defined ? b : 0)) : T{0};
  }
};

struct ShiftRight {
  template <typename T>
  DTRUN_BOTH T operator()(T a, T b) const {
    return static_cast<T>(a >> (b >= 0 && b < kBits<T> ? b : kBits<T> - 1));
  }
};

}  // namespace
}  // namespace dtrun::tensors::formulas
