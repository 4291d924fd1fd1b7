#include <type_traits>

#include "dtrun/base/error.h"
#include "formulas/quotients.h"
#include "kernels/map_operators.h"

namespace dtrun::tensors {
namespace {

/// On CUDA devices the kernel tells of a 0 instead (cuda/map.h).
template <typename F>
struct Checked {
  template <typename T>
  T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {
      if (b == 0) refuse_zero_divisor();
    }
    return F{}(a, b);
  }
};

template <typename Op>
constexpr MapRuns bitwise() {
  return two_integers<formulas::Binary<Op>>()
      .with(DType::u8, &map_two<formulas::Binary<Op>, std::uint8_t, std::uint8_t, std::uint8_t>)
      .with(DType::boolean, &map_two<formulas::Binary<Op>, Boolean, Boolean, Boolean>);
}

/// bf16 goes by words of two elements.
template <typename Op>
constexpr MapOperator by_words(std::string_view name, Domain domain, MapFunction function,
                               MapRuns runs) {
  return {name,
          domain,
          function,
          runs,
          MapResult::same,
          &map_two_bf16<formulas::Binary<Op>>,
          nullptr,
          &map_one<WithNumber<formulas::Binary<Op>>, float, float>};
}
/// A factor or divisor that is a number is not rounded.
template <typename Op>
constexpr MapOperator with_numbers(MapOperator by_words) {
  by_words.bf16_with_number = &map_one_bf16<WithNumber<formulas::Binary<Op>>>;
  return by_words;
}

}  // namespace

void refuse_zero_divisor() {
  throw base::Error(base::ErrorCode::kInvalidArgument, "integer division by zero",
                    "an element of the divisor is 0",
                    "div(), which gives a floating-point result, or where() over the divisor");
}

const MapOperator kAdd =
    by_words<Add>("add", Domain::all, MapFunction::add, two_of_all<formulas::Binary<Add>>());
const MapOperator kSub = by_words<Subtract>(
    "sub", Domain::no_bool, MapFunction::sub,
    two_numbers<formulas::Binary<Subtract>>().with(
        DType::u8, &map_two<formulas::Binary<Subtract>, std::uint8_t, std::uint8_t, std::uint8_t>));
const MapOperator kMul = with_numbers<Multiply>(by_words<Multiply>(
    "mul", Domain::all, MapFunction::mul, two_of_all<formulas::Binary<Multiply>>()));
const MapOperator kDiv = with_numbers<Divide>(by_words<Divide>(
    "div", Domain::to_floating, MapFunction::div, two_floating<formulas::Binary<Divide>>()));
const MapOperator kMaximum = by_words<Max>("maximum", Domain::all, MapFunction::maximum,
                                           two_of_all<formulas::Binary<Max>>());
const MapOperator kMinimum = by_words<Min>("minimum", Domain::all, MapFunction::minimum,
                                           two_of_all<formulas::Binary<Min>>());
const MapOperator kFloorDivide{"floor_divide", Domain::numbers, MapFunction::floor_divide,
                               two_numbers<Checked<formulas::FloorDivide>>()};
const MapOperator kTruncDivide{"trunc_divide", Domain::numbers, MapFunction::trunc_divide,
                               two_numbers<Checked<formulas::TruncDivide>>()};
const MapOperator kRemainder{"remainder", Domain::numbers, MapFunction::remainder,
                             two_numbers<Checked<formulas::Remainder>>()};
const MapOperator kFmod{"fmod", Domain::numbers, MapFunction::fmod,
                        two_numbers<Checked<formulas::Fmod>>()};
const MapOperator kBitAnd{"bitwise_and", Domain::integers_and_bool, MapFunction::bit_and,
                          bitwise<BitAnd>()};
const MapOperator kBitOr{"bitwise_or", Domain::integers_and_bool, MapFunction::bit_or,
                         bitwise<BitOr>()};
const MapOperator kBitXor{"bitwise_xor", Domain::integers_and_bool, MapFunction::bit_xor,
                          bitwise<BitXor>()};
const MapOperator kBitNot{
    "bitwise_not", Domain::integers_and_bool, MapFunction::bit_not,
    MapRuns{}
        .with(DType::i64, &map_one<formulas::BitNot, std::int64_t, std::int64_t>)
        .with(DType::i32, &map_one<formulas::BitNot, std::int32_t, std::int32_t>)
        .with(DType::boolean, &map_one<formulas::BitNot, Boolean, Boolean>)};
const MapOperator kShiftLeft{"bitwise_left_shift", Domain::integers, MapFunction::shift_left,
                             two_integers<formulas::ShiftLeft>()};
const MapOperator kShiftRight{"bitwise_right_shift", Domain::integers, MapFunction::shift_right,
                              two_integers<formulas::ShiftRight>()};

}  // namespace dtrun::tensors
