// Greatest and Least: Max and Min, but of 0 and -0 always the same one, so that the order in which
// elements are compared does not matter. For the kernels of the host and of CUDA devices.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "arithmetic.h"

namespace dtrun::tensors {

template <typename Order>
struct Extreme {
  using Direction = Order;
  template <typename A>
  DTRUN_BOTH static A apply(A a, A b) {
    const A chosen = Order::apply(a, b);
    if constexpr (std::is_floating_point_v<A>) {
      using Bits = std::conditional_t<sizeof(A) == 8, std::uint64_t, std::uint32_t>;
      const Bits left = std::bit_cast<Bits>(a);
      const Bits right = std::bit_cast<Bits>(b);
      const A same = std::bit_cast<A>(std::is_same_v<Order, Max> ? left & right : left | right);
      return a == b ? same : chosen;
    } else {
      return chosen;
    }
  }
};
using Greatest = Extreme<Max>;
using Least = Extreme<Min>;

/// What changes no element that it is joined with.
template <typename Op, typename A>
DTRUN_BOTH A neutral() {
  constexpr bool kFloating = std::is_floating_point_v<A>;
  if constexpr (std::is_same_v<Op, Multiply>) {
    return A{1};
  } else if constexpr (std::is_same_v<Op, Add>) {
    return A{0};
  } else if constexpr (std::is_same_v<Op, Max> || std::is_same_v<Op, Greatest>) {
    return kFloating ? -std::numeric_limits<A>::infinity() : std::numeric_limits<A>::lowest();
  } else {
    static_assert(std::is_same_v<Op, Min> || std::is_same_v<Op, Least>);
    return kFloating ? std::numeric_limits<A>::infinity() : std::numeric_limits<A>::max();
  }
}

}  // namespace dtrun::tensors
