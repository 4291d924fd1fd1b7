// DType: element types, their sizes, names and promotion, as PyTorch's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace dtrun::tensors {

namespace values {
enum class DType : std::uint8_t { f64, f32, f16, bf16, i64, i32, i16, i8, u8, boolean };
}
using values::DType;

inline constexpr std::size_t kDTypes = static_cast<std::size_t>(DType::boolean) + 1;

/// Bytes of one element.
constexpr std::size_t item_size(DType dtype) {
  switch (dtype) {
    case DType::f64:
    case DType::i64:
      return 8;
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::f16:
    case DType::bf16:
    case DType::i16:
      return 2;
    case DType::i8:
    case DType::u8:
    case DType::boolean:
      return 1;
  }
  return 0;
}
bool is_floating_point(DType dtype);
/// PyTorch's: "float32", "bfloat16", "bool".
std::string_view dtype_name(DType dtype);
namespace values {
/// For print().
inline std::string_view to_string(DType dtype) {
  return dtype_name(dtype);
}
}  // namespace values
/// The vectors' and messages': "f32", "bf16", "bool".
std::string_view dtype_short_name(DType dtype);
/// @throws Error kInvalidArgument; accepts both names
DType parse_dtype(std::string_view name);
/// The dtype whose elements are `T`s; the halves have no type of C++.
template <typename T>
inline constexpr DType kDTypeOf = [] {
  static_assert(sizeof(T) == 0, "no dtype has elements of that type");
  return DType::f32;
}();
template <>
inline constexpr DType kDTypeOf<double> = DType::f64;
template <>
inline constexpr DType kDTypeOf<float> = DType::f32;
template <>
inline constexpr DType kDTypeOf<std::int64_t> = DType::i64;
template <>
inline constexpr DType kDTypeOf<std::int32_t> = DType::i32;
template <>
inline constexpr DType kDTypeOf<std::int16_t> = DType::i16;
template <>
inline constexpr DType kDTypeOf<std::int8_t> = DType::i8;
template <>
inline constexpr DType kDTypeOf<std::uint8_t> = DType::u8;
template <>
inline constexpr DType kDTypeOf<bool> = DType::boolean;
/// What a binary operation of two tensors computes in (torch.promote_types).
DType promote_types(DType a, DType b);

}  // namespace dtrun::tensors
