// The types behind the DTypes: how an element lies in memory, what it is computed in, how one type
// converts to another; and dispatch(), the only switch from a DType to a type.
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include "dtrun/tensor/dtype.h"
#include "half.h"
#include "host_device.h"

namespace dtrun::tensors {

/// Any byte but 0 is true: memory that nobody has written yet may hold any.
struct Boolean {
  std::uint8_t byte;
};

/// Compute is what operations run in; load and store go between memory and it.
template <typename T>
struct Element {
  using Compute = T;
  DTRUN_BOTH static Compute load(T value) { return value; }
  DTRUN_BOTH static T store(Compute value) { return value; }
};

template <>
struct Element<Float16> {
  using Compute = float;
  DTRUN_BOTH static float load(Float16 value) { return to_float(value); }
  DTRUN_BOTH static Float16 store(float value) { return to_float16(value); }
};

template <>
struct Element<BFloat16> {
  using Compute = float;
  DTRUN_BOTH static float load(BFloat16 value) { return to_float(value); }
  DTRUN_BOTH static BFloat16 store(float value) { return to_bfloat16(value); }
};

template <>
struct Element<Boolean> {
  using Compute = bool;
  DTRUN_BOTH static bool load(Boolean value) { return value.byte != 0; }
  DTRUN_BOTH static Boolean store(bool value) { return Boolean{static_cast<std::uint8_t>(value)}; }
};

template <typename T>
using ComputeType = typename Element<T>::Compute;

/// Floating point to integer truncates. What does not fit becomes the lowest number, as x86 does
/// it; u8 goes through i64, i8 and i16 through i32, and wraps.
template <typename To, typename From>
DTRUN_BOTH To convert_number(From value) {
  if constexpr (std::is_same_v<To, bool>) {
    return value != From{0};
  } else if constexpr (std::is_same_v<To, std::uint8_t> && std::is_floating_point_v<From>) {
    return static_cast<To>(convert_number<std::int64_t>(value));
  } else if constexpr (sizeof(To) < 4 && std::is_integral_v<To> && std::is_floating_point_v<From>) {
    return static_cast<To>(convert_number<std::int32_t>(value));
  } else if constexpr (std::is_integral_v<To> && std::is_floating_point_v<From>) {
    constexpr From kLow = static_cast<From>(std::numeric_limits<To>::min());
    return value >= kLow && value < -kLow ? static_cast<To>(value) : std::numeric_limits<To>::min();
  } else {
    return static_cast<To>(value);
  }
}

template <typename To, typename From>
DTRUN_BOTH To convert_element(From value) {
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else {
    return Element<To>::store(convert_number<ComputeType<To>>(Element<From>::load(value)));
  }
}

template <typename T>
struct TypeTag {
  using Type = T;
};

/// Calls function(TypeTag<T>{}) with the dtype's T.
template <typename Function>
DTRUN_BOTH decltype(auto) dispatch(DType dtype, Function&& function) {
  switch (dtype) {
    case DType::f64:
      return function(TypeTag<double>{});
    case DType::f32:
      return function(TypeTag<float>{});
    case DType::f16:
      return function(TypeTag<Float16>{});
    case DType::bf16:
      return function(TypeTag<BFloat16>{});
    case DType::i64:
      return function(TypeTag<std::int64_t>{});
    case DType::i32:
      return function(TypeTag<std::int32_t>{});
    case DType::i16:
      return function(TypeTag<std::int16_t>{});
    case DType::i8:
      return function(TypeTag<std::int8_t>{});
    case DType::u8:
      return function(TypeTag<std::uint8_t>{});
    case DType::boolean:
      break;
  }
  return function(TypeTag<Boolean>{});
}

}  // namespace dtrun::tensors
