// MapNumbers: the numbers of a pointwise call. A value, as kernels take it.
#pragma once

#include <array>
#include <cstdint>
#include <type_traits>

#include "dtrun/tensor/scalar.h"
#include "host_device.h"

namespace dtrun::tensors {

/// What an operator takes besides its operands: a slope, bounds.
struct MapNumbers {
  std::array<double, 2> floating{};
  std::array<std::int64_t, 2> integer{};

  static MapNumbers of(Scalar first, Scalar second = 0) {
    const auto whole = [](Scalar number) { return number.is_floating() ? 0 : number.to_i64(); };
    return {{first.to_double(), second.to_double()}, {whole(first), whole(second)}};
  }
  template <typename T>
  DTRUN_BOTH T get(std::size_t index) const {
    if constexpr (std::is_floating_point_v<T>) return static_cast<T>(floating[index]);
    if constexpr (!std::is_floating_point_v<T>) return static_cast<T>(integer[index]);
  }
};

}  // namespace dtrun::tensors
