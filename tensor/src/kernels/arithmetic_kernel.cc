#include <fmt/core.h>

#include <cmath>
#include <limits>

#include "arithmetic.h"
#include "dtrun/base/error.h"
#include "kernels/map_operators.h"

namespace dtrun::tensors {
namespace {

/// arithmetic.h's functions, as objects.
template <typename Op>
struct Binary {
  template <typename T>
  T operator()(T a, T b) const {
    return Op::apply(a, b);
  }
};

template <typename T>
constexpr int kBits = static_cast<int>(8 * sizeof(T));

/// Truncates; the lowest number by -1 wraps.
template <typename T>
T quotient(T a, T b) {
  return b == -1 ? static_cast<T>(-static_cast<std::make_unsigned_t<T>>(a)) : a / b;
}
template <typename T>
T rest(T a, T b) {
  return b == -1 ? T{0} : a % b;
}

[[noreturn]] __attribute__((noinline)) void refuse_zero() {
  throw base::Error(base::ErrorCode::kInvalidArgument, "integer division by zero",
                    "an element of the divisor is 0",
                    "div(), which gives a floating-point result, or where() over the divisor");
}
template <typename T>
void require_divisor(T b) {
  if constexpr (std::is_integral_v<T>) {
    if (b == 0) refuse_zero();
  }
}

// Python's rounding, and what PyTorch makes of quotients that are off by one in the last bit.
struct FloorDivide {
  template <typename T>
  T operator()(T a, T b) const {
    require_divisor(b);
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
  T operator()(T a, T b) const {
    require_divisor(b);
    if constexpr (std::is_integral_v<T>) return quotient(a, b);
    if constexpr (!std::is_integral_v<T>) return std::trunc(a / b);
  }
};

/// The sign of the divisor.
struct Remainder {
  template <typename T>
  T operator()(T a, T b) const {
    require_divisor(b);
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
  T operator()(T a, T b) const {
    require_divisor(b);
    if constexpr (std::is_integral_v<T>) return rest(a, b);
    if constexpr (!std::is_integral_v<T>) return std::fmod(a, b);
  }
};

struct BitNot {
  template <typename T>
  T operator()(T a) const {
    return static_cast<T>(~a);
  }
  bool operator()(bool a) const { return !a; }
};

struct ShiftLeft {
  template <typename T>
  T operator()(T a, T b) const {
    const bool defined = b >= 0 && b < kBits<T>;
    const auto bits = static_cast<std::make_unsigned_t<T>>(a);
    return defined ? static_cast<T>(bits << (defined ? b : 0)) : T{0};
  }
};

struct ShiftRight {
  template <typename T>
  T operator()(T a, T b) const {
    return static_cast<T>(a >> (b >= 0 && b < kBits<T> ? b : kBits<T> - 1));
  }
};

template <typename Op>
constexpr MapRuns bitwise() {
  return two_integers<Binary<Op>>()
      .with(DType::u8, &map_two<Binary<Op>, std::uint8_t, std::uint8_t, std::uint8_t>)
      .with(DType::boolean, &map_two<Binary<Op>, Boolean, Boolean, Boolean>);
}

}  // namespace

const MapOperator kAdd{"add", Domain::all, two_of_all<Binary<Add>>()};
const MapOperator kSub{
    "sub", Domain::no_bool,
    two_numbers<Binary<Subtract>>().with(
        DType::u8, &map_two<Binary<Subtract>, std::uint8_t, std::uint8_t, std::uint8_t>)};
const MapOperator kMul{"mul", Domain::all, two_of_all<Binary<Multiply>>()};
const MapOperator kDiv{"div", Domain::to_floating, two_floating<Binary<Divide>>()};
const MapOperator kMaximum{"maximum", Domain::all, two_of_all<Binary<Max>>()};
const MapOperator kMinimum{"minimum", Domain::all, two_of_all<Binary<Min>>()};
const MapOperator kFloorDivide{"floor_divide", Domain::numbers, two_numbers<FloorDivide>()};
const MapOperator kTruncDivide{"trunc_divide", Domain::numbers, two_numbers<TruncDivide>()};
const MapOperator kRemainder{"remainder", Domain::numbers, two_numbers<Remainder>()};
const MapOperator kFmod{"fmod", Domain::numbers, two_numbers<Fmod>()};
const MapOperator kBitAnd{"bitwise_and", Domain::integers_and_bool, bitwise<BitAnd>()};
const MapOperator kBitOr{"bitwise_or", Domain::integers_and_bool, bitwise<BitOr>()};
const MapOperator kBitXor{"bitwise_xor", Domain::integers_and_bool, bitwise<BitXor>()};
const MapOperator kBitNot{"bitwise_not", Domain::integers_and_bool,
                          MapRuns{}
                              .with(DType::i64, &map_one<BitNot, std::int64_t, std::int64_t>)
                              .with(DType::i32, &map_one<BitNot, std::int32_t, std::int32_t>)
                              .with(DType::boolean, &map_one<BitNot, Boolean, Boolean>)};
const MapOperator kShiftLeft{"bitwise_left_shift", Domain::integers, two_integers<ShiftLeft>()};
const MapOperator kShiftRight{"bitwise_right_shift", Domain::integers, two_integers<ShiftRight>()};

}  // namespace dtrun::tensors
