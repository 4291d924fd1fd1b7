// Scalar: a number and its kind, as it was written: true, 2 or 2.0. The kind, never the value,
// decides dtypes. A value; made by conversion from any arithmetic type.
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

#include "dtrun/tensor/dtype.h"

namespace dtrun::tensors::values {

class Scalar {
 public:
  /// In the order in which one kind swallows another.
  enum class Kind : std::uint8_t { boolean, integer, floating };
  /// Of a tensor of numbers of that kind: boolean, i64, or f32.
  static DType dtype_of(Kind kind);

  /// @throws Error kInvalidArgument for an integer beyond i64
  template <typename T>
  requires std::is_arithmetic_v<T> Scalar(T value)  // NOLINT: numbers convert
      : floating_(static_cast<double>(value)) {
    if constexpr (std::is_floating_point_v<T>) {
      kind_ = Kind::floating;
    } else if constexpr (std::same_as<T, bool>) {
      kind_ = Kind::boolean;
      integer_ = value ? 1 : 0;
    } else {
      if constexpr (std::is_unsigned_v<T> && sizeof(T) == sizeof(std::int64_t)) {
        if (value > static_cast<T>(INT64_MAX)) refuse(value);
      }
      kind_ = Kind::integer;
      integer_ = static_cast<std::int64_t>(value);
    }
  }

  Kind kind() const { return kind_; }
  bool is_floating() const { return kind_ == Kind::floating; }
  double to_double() const { return floating_; }
  /// Exact. @throws Error kInvalidArgument for a floating one
  std::int64_t to_i64() const;
  DType dtype() const { return dtype_of(kind_); }

 private:
  [[noreturn]] static void refuse(std::uint64_t value);

  Kind kind_;
  double floating_;           ///< of all kinds; rounded where an integer is beyond 2^53
  std::int64_t integer_ = 0;  ///< of booleans and integers
};

}  // namespace dtrun::tensors::values

namespace dtrun::tensors {
using values::Scalar;
}
