// Functions that are exact to the last bit. kWaitsForMemory: kernels/map_kernel.h.
#pragma once

#include <cmath>
#include <type_traits>

#include "arithmetic.h"
#include "kernels/map_numbers.h"

namespace dtrun::tensors::formulas {
namespace {

struct Negate {
  static constexpr bool kWaitsForMemory = true;
  template <typename T>
  DTRUN_BOTH T operator()(T a) const {
    if constexpr (std::is_integral_v<T>) return static_cast<T>(-static_cast<Wrapping<T>>(a));
    if constexpr (!std::is_integral_v<T>) return -a;
  }
};
struct Absolute {
  static constexpr bool kWaitsForMemory = true;
  template <typename T>
  DTRUN_BOTH T operator()(T a) const {
    if constexpr (std::is_integral_v<T>) return a < 0 ? Negate{}(a) : a;
    if constexpr (!std::is_integral_v<T>) return std::fabs(a);
  }
};
/// nan gives 0.
struct Sign {
  template <typename T>
  DTRUN_BOTH T operator()(T a) const {
    return static_cast<T>((a > 0) - (a < 0));
  }
};
struct Square {
  static constexpr bool kWaitsForMemory = true;
  template <typename T>
  DTRUN_BOTH T operator()(T a) const {
    return Multiply::apply(a, a);
  }
};
struct Reciprocal {
  template <typename T>
  DTRUN_BOTH T operator()(T a) const {
    return 1 / a;
  }
};
struct SquareRoot {
  template <typename T>
  DTRUN_BOTH T operator()(T a) const {
    return std::sqrt(a);
  }
};
struct ReciprocalRoot {
  template <typename T>
  DTRUN_BOTH T operator()(T a) const {
    return 1 / std::sqrt(a);
  }
};
struct Floor {
  template <typename T>
  DTRUN_BOTH T operator()(T a) const {
    return std::floor(a);
  }
};
struct Ceil {
  template <typename T>
  DTRUN_BOTH T operator()(T a) const {
    return std::ceil(a);
  }
};
/// Ties to even.
struct Round {
  template <typename T>
  DTRUN_BOTH T operator()(T a) const {
    return std::nearbyint(a);
  }
};
struct Truncate {
  template <typename T>
  DTRUN_BOTH T operator()(T a) const {
    return std::trunc(a);
  }
};

struct Relu {
  template <typename T>
  DTRUN_BOTH T operator()(T a) const {
    return a < 0 ? T{0} : a;
  }
};
struct LeakyRelu {
  double slope;
  DTRUN_BOTH explicit LeakyRelu(const MapNumbers& numbers) : slope(numbers.floating[0]) {}
  template <typename T>
  DTRUN_BOTH T operator()(T a) const {
    return a > 0 ? a : a * static_cast<T>(slope);
  }
};
struct HardSigmoid {
  template <typename T>
  DTRUN_BOTH T operator()(T a) const {
    return Min::apply(Max::apply(a + 3, T{0}), T{6}) / 6;
  }
};
struct ClampNumbers {
  static constexpr bool kWaitsForMemory = true;
  MapNumbers bounds;
  DTRUN_BOTH explicit ClampNumbers(const MapNumbers& numbers) : bounds(numbers) {}
  template <typename T>
  DTRUN_BOTH T operator()(T a) const {
    // Where both are equal, -0 and 0, the element stays.
    return Min::apply(bounds.get<T>(1), Max::apply(bounds.get<T>(0), a));
  }
};

struct Clamp {
  template <typename T>
  DTRUN_BOTH T operator()(T a, T low, T high) const {
    return Min::apply(high, Max::apply(low, a));
  }
};
/// Exact at both ends.
struct Lerp {
  template <typename T>
  DTRUN_BOTH T operator()(T start, T end, T weight) const {
    const T way = end - start;
    return std::fabs(weight) < T{0.5} ? start + weight * way : end - way * (1 - weight);
  }
};
struct AddProduct {
  MapNumbers value;
  DTRUN_BOTH explicit AddProduct(const MapNumbers& numbers) : value(numbers) {}
  template <typename T>
  DTRUN_BOTH T operator()(T a, T b, T c) const {
    return Add::apply(a, Multiply::apply(Multiply::apply(value.get<T>(0), b), c));
  }
};
struct AddQuotient {
  MapNumbers value;
  DTRUN_BOTH explicit AddQuotient(const MapNumbers& numbers) : value(numbers) {}
  template <typename T>
  DTRUN_BOTH T operator()(T a, T b, T c) const {
    return a + value.get<T>(0) * b / c;
  }
};

struct Where {
  template <typename T>
  DTRUN_BOTH T operator()(bool condition, T a, T b) const {
    return condition ? a : b;
  }
};

}  // namespace
}  // namespace dtrun::tensors::formulas
