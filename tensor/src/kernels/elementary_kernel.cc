#include "formulas/elementary.h"
#include "kernels/map_operators.h"

namespace dtrun::tensors {
namespace {

/// Bits of that width are chosen, whatever they mean.
template <typename Bits>
constexpr MapRun kWhereBits = &map_three<formulas::Where, Bits, Boolean, Bits, Bits>;

/// bf16 goes by words of two elements.
template <typename F>
constexpr MapOperator by_words_of_one(std::string_view name, Domain domain, MapFunction function,
                                      MapRuns runs) {
  return {name, domain, function, runs, MapResult::same, &map_one_bf16<F>};
}

}  // namespace

const MapOperator kNeg = by_words_of_one<formulas::Negate>("neg", Domain::numbers, MapFunction::neg,
                                                           one_number<formulas::Negate>());
const MapOperator kAbs = by_words_of_one<formulas::Absolute>(
    "abs", Domain::numbers, MapFunction::abs, one_number<formulas::Absolute>());
const MapOperator kSign{"sign", Domain::numbers, MapFunction::sign, one_number<formulas::Sign>()};
const MapOperator kSquare = by_words_of_one<formulas::Square>(
    "square", Domain::numbers, MapFunction::square, one_number<formulas::Square>());
const MapOperator kReciprocal = by_words_of_one<formulas::Reciprocal>(
    "reciprocal", Domain::to_floating, MapFunction::reciprocal,
    one_floating<formulas::Reciprocal>());
const MapOperator kSqrt = by_words_of_one<formulas::SquareRoot>(
    "sqrt", Domain::to_floating, MapFunction::sqrt, one_floating<formulas::SquareRoot>());
const MapOperator kRsqrt{"rsqrt", Domain::to_floating, MapFunction::rsqrt,
                         one_floating<formulas::ReciprocalRoot>()};
const MapOperator kFloor{"floor", Domain::floating, MapFunction::floor,
                         one_floating<formulas::Floor>()};
const MapOperator kCeil{"ceil", Domain::floating, MapFunction::ceil,
                        one_floating<formulas::Ceil>()};
const MapOperator kRound{"round", Domain::floating, MapFunction::round,
                         one_floating<formulas::Round>()};
const MapOperator kTrunc{"trunc", Domain::floating, MapFunction::trunc,
                         one_floating<formulas::Truncate>()};
const MapOperator kRelu = by_words_of_one<formulas::Relu>(
    "relu", Domain::numbers, MapFunction::relu, one_number<formulas::Relu>());
const MapOperator kLeakyRelu = by_words_of_one<formulas::LeakyRelu>(
    "leaky_relu", Domain::floating, MapFunction::leaky_relu, one_floating<formulas::LeakyRelu>());
const MapOperator kHardSigmoid{"hardsigmoid", Domain::floating, MapFunction::hardsigmoid,
                               one_floating<formulas::HardSigmoid>()};
const MapOperator kClampNumbers = by_words_of_one<formulas::ClampNumbers>(
    "clamp", Domain::numbers, MapFunction::clamp_numbers, one_number<formulas::ClampNumbers>());
const MapOperator kHardtanh = by_words_of_one<formulas::ClampNumbers>(
    "hardtanh", Domain::numbers, MapFunction::clamp_numbers, one_number<formulas::ClampNumbers>());
const MapOperator kClamp{"clamp", Domain::numbers, MapFunction::clamp,
                         three_numbers<formulas::Clamp>()};
const MapOperator kLerp{"lerp", Domain::floating, MapFunction::lerp,
                        three_floating<formulas::Lerp>()};
const MapOperator kAddcmul{"addcmul", Domain::numbers, MapFunction::addcmul,
                           three_numbers<formulas::AddProduct>()};
const MapOperator kAddcdiv{"addcdiv", Domain::floating, MapFunction::addcdiv,
                           three_floating<formulas::AddQuotient>()};
const MapOperator kWhere{
    "where", Domain::all, MapFunction::where,
    MapRuns{{kWhereBits<std::uint64_t>, kWhereBits<std::uint32_t>, kWhereBits<std::uint16_t>,
             kWhereBits<std::uint16_t>, kWhereBits<std::uint64_t>, kWhereBits<std::uint32_t>,
             kWhereBits<std::uint16_t>, kWhereBits<std::uint8_t>, kWhereBits<std::uint8_t>,
             kWhereBits<std::uint8_t>}}};

}  // namespace dtrun::tensors
