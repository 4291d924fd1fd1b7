// Elements of a dtype that is known at run time only: a switch an element, the same way for all
// threads. Kernels that memory bounds are compiled once so, not once a dtype. For .cu files only.
#pragma once

#include <cstdint>
#include <type_traits>

#include "element.h"

namespace dtrun::tensors::cuda {

/// Element i as a number of type A.
template <typename A>
DTRUN_BOTH A load_number(const void* data, DType dtype, std::int64_t i) {
  return dispatch(dtype, [&](auto tag) {
    using From = typename decltype(tag)::Type;
    return convert_number<A>(Element<From>::load(static_cast<const From*>(data)[i]));
  });
}

/// Of a floating-point dtype.
template <typename A>
DTRUN_BOTH A load_floating(const void* data, DType dtype, std::int64_t i) {
  switch (dtype) {
    case DType::f64:
      return static_cast<A>(static_cast<const double*>(data)[i]);
    case DType::f32:
      return static_cast<A>(static_cast<const float*>(data)[i]);
    case DType::f16:
      return static_cast<A>(to_float(static_cast<const Float16*>(data)[i]));
    default:
      return static_cast<A>(to_float(static_cast<const BFloat16*>(data)[i]));
  }
}

template <typename A>
DTRUN_BOTH void store_number(void* data, DType dtype, std::int64_t i, A number) {
  dispatch(dtype, [&](auto tag) {
    using To = typename decltype(tag)::Type;
    static_cast<To*>(data)[i] = Element<To>::store(convert_number<ComputeType<To>>(number));
  });
}

/// Moves an element of so many bytes: what it is does not matter.
DTRUN_BOTH inline void move_element(std::size_t bytes, void* to, std::int64_t i, const void* from,
                                    std::int64_t j) {
  const auto move = [&](auto tag) {
    using T = typename decltype(tag)::Type;
    static_cast<T*>(to)[i] = static_cast<const T*>(from)[j];
  };
  switch (bytes) {
    case 1:
      return move(TypeTag<std::uint8_t>{});
    case 2:
      return move(TypeTag<std::uint16_t>{});
    case 4:
      return move(TypeTag<std::uint32_t>{});
    default:
      return move(TypeTag<std::uint64_t>{});
  }
}

}  // namespace dtrun::tensors::cuda
