// The binary functions on compute types, written once for the kernels of the host and of CUDA
// devices. Integers wrap. On bool, add and max are "or", mul and min are "and". min and max return
// NaN if either operand is NaN.
#pragma once

#include <type_traits>

#include "host_device.h"

namespace dtrun::tensors {

/// Where overflow wraps instead of being undefined.
template <typename T, bool = std::is_integral_v<T> && !std::is_same_v<T, bool>>
struct WrappingType {
  using Type = T;
};
template <typename T>
struct WrappingType<T, true> {
  using Type = std::make_unsigned_t<T>;
};
template <typename T>
using Wrapping = typename WrappingType<T>::Type;

struct Add {
  template <typename T>
  DTRUN_BOTH static T apply(T a, T b) {
    return static_cast<T>(static_cast<Wrapping<T>>(a) + static_cast<Wrapping<T>>(b));
  }
  DTRUN_BOTH static bool apply(bool a, bool b) { return a | b; }
};

struct Subtract {
  template <typename T>
  DTRUN_BOTH static T apply(T a, T b) {
    return static_cast<T>(static_cast<Wrapping<T>>(a) - static_cast<Wrapping<T>>(b));
  }
};

struct Multiply {
  template <typename T>
  DTRUN_BOTH static T apply(T a, T b) {
    // Unsigned shorts would be multiplied as ints, which have no room for each product.
    if constexpr (sizeof(T) < sizeof(int)) {
      return static_cast<T>((1u * static_cast<Wrapping<T>>(a)) * static_cast<Wrapping<T>>(b));
    } else {
      return static_cast<T>(static_cast<Wrapping<T>>(a) * static_cast<Wrapping<T>>(b));
    }
  }
  DTRUN_BOTH static bool apply(bool a, bool b) { return a & b; }
};

struct Divide {
  template <typename T>
  DTRUN_BOTH static T apply(T a, T b) {
    static_assert(std::is_floating_point_v<T>);
    return a / b;
  }
};

struct Min {
  template <typename T>
  DTRUN_BOTH static T apply(T a, T b) {
    return ((a < b) | (a != a)) ? a : b;
  }
  DTRUN_BOTH static bool apply(bool a, bool b) { return a & b; }
};

struct Max {
  template <typename T>
  DTRUN_BOTH static T apply(T a, T b) {
    return ((a > b) | (a != a)) ? a : b;
  }
  DTRUN_BOTH static bool apply(bool a, bool b) { return a | b; }
};

struct BitAnd {
  template <typename T>
  DTRUN_BOTH static T apply(T a, T b) {
    return static_cast<T>(a & b);
  }
};

struct BitOr {
  template <typename T>
  DTRUN_BOTH static T apply(T a, T b) {
    return static_cast<T>(a | b);
  }
};

struct BitXor {
  template <typename T>
  DTRUN_BOTH static T apply(T a, T b) {
    return static_cast<T>(a ^ b);
  }
};

}  // namespace dtrun::tensors
