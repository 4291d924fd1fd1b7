// MapOperator: what a pointwise operator is, apart from its shapes: its name, the dtypes it is
// for, and its loops. Constants, one file for each family of loops.
#pragma once

#include <string_view>

#include "kernels/map_function.h"
#include "kernels/map_kernel.h"

namespace dtrun::tensors {

/// What an operator does with the dtype that its operands have in common.
enum class Domain : std::uint8_t {
  all,                ///< computes in it
  numbers,            ///< refuses bool
  no_bool,            ///< refuses it as an operand, too
  to_floating,        ///< integers and bool become f32 first
  floating,           ///< refuses integers and bool
  integers,           ///< refuses floating point and bool
  integers_and_bool,  ///< refuses floating point
  as_bool,            ///< looks only whether elements are 0
};
enum class MapResult : std::uint8_t { same, boolean };

struct MapOperator {
  std::string_view name;
  Domain domain;
  MapFunction function;  ///< on CUDA devices
  MapRuns runs;
  MapResult result = MapResult::same;
  /// For bf16 operands, where that is faster than the run of f32 on blocks of them.
  MapRun bf16 = nullptr;
  /// The same of the first operand, where the second is a number that stays a float.
  MapRun bf16_with_number = nullptr;
  /// For a first operand of f32 and a number.
  MapRun f32_with_number = nullptr;
};

// arithmetic_kernel.cc
extern const MapOperator kAdd, kSub, kMul, kDiv, kMaximum, kMinimum;
extern const MapOperator kFloorDivide, kTruncDivide, kRemainder, kFmod;
/// What they answer to an integer by 0.
[[noreturn]] __attribute__((noinline)) void refuse_zero_divisor();
extern const MapOperator kBitAnd, kBitOr, kBitXor, kBitNot, kShiftLeft, kShiftRight;

// comparison_kernel.cc
extern const MapOperator kEqual, kNotEqual, kLess, kLessEqual;
extern const MapOperator kLogicalAnd, kLogicalOr, kLogicalXor, kLogicalNot;
extern const MapOperator kIsNan, kIsInf, kIsFinite;

// elementary_kernel.cc: exact to the last bit
extern const MapOperator kNeg, kAbs, kSign, kSquare, kReciprocal, kSqrt, kRsqrt;
extern const MapOperator kFloor, kCeil, kRound, kTrunc, kHardSigmoid;
/// Numbers: bounds; the slope.
extern const MapOperator kRelu, kLeakyRelu, kClampNumbers, kHardtanh;
/// Three operands.
extern const MapOperator kClamp, kLerp, kWhere;
/// Number: the value that the product or quotient is multiplied with.
extern const MapOperator kAddcmul, kAddcdiv;

// exponential_kernel.cc
extern const MapOperator kExp, kLog, kLog2, kLog10, kLog1p, kExpm1, kErf, kErfc;
extern const MapOperator kSigmoidBackward, kTanhBackward, kSiluBackward, kGeluBackward,
    kGeluTanhBackward;
extern const MapOperator kLogAddExp, kSigmoid, kSilu, kMish, kGelu, kGeluTanh;
/// Numbers: alpha; beta and threshold.
extern const MapOperator kElu, kSoftplus;

// trigonometric_kernel.cc
extern const MapOperator kSin, kCos, kTan, kSinh, kCosh, kTanh, kAsin, kAcos, kAtan, kAtan2, kAsinh,
    kAcosh, kAtanh;
extern const MapOperator kPow;

}  // namespace dtrun::tensors
