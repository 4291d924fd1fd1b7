#include <cmath>

#include "arithmetic.h"
#include "kernels/map_operators.h"

namespace dtrun::tensors {
namespace {

struct Negate {
  template <typename T>
  T operator()(T a) const {
    if constexpr (std::is_integral_v<T>) return static_cast<T>(-static_cast<Wrapping<T>>(a));
    if constexpr (!std::is_integral_v<T>) return -a;
  }
};
struct Absolute {
  template <typename T>
  T operator()(T a) const {
    if constexpr (std::is_integral_v<T>) return a < 0 ? Negate{}(a) : a;
    if constexpr (!std::is_integral_v<T>) return std::fabs(a);
  }
};
/// nan gives 0.
struct Sign {
  template <typename T>
  T operator()(T a) const {
    return static_cast<T>((a > 0) - (a < 0));
  }
};
struct Square {
  template <typename T>
  T operator()(T a) const {
    return Multiply::apply(a, a);
  }
};
struct Reciprocal {
  template <typename T>
  T operator()(T a) const {
    return 1 / a;
  }
};
struct SquareRoot {
  template <typename T>
  T operator()(T a) const {
    return std::sqrt(a);
  }
};
struct ReciprocalRoot {
  template <typename T>
  T operator()(T a) const {
    return 1 / std::sqrt(a);
  }
};
struct Floor {
  template <typename T>
  T operator()(T a) const {
    return std::floor(a);
  }
};
struct Ceil {
  template <typename T>
  T operator()(T a) const {
    return std::ceil(a);
  }
};
/// Ties to even.
struct Round {
  template <typename T>
  T operator()(T a) const {
    return std::nearbyint(a);
  }
};
struct Truncate {
  template <typename T>
  T operator()(T a) const {
    return std::trunc(a);
  }
};

struct Relu {
  template <typename T>
  T operator()(T a) const {
    return a < 0 ? T{0} : a;
  }
};
struct LeakyRelu {
  double slope;
  explicit LeakyRelu(const MapNumbers& numbers) : slope(numbers.floating[0]) {}
  template <typename T>
  T operator()(T a) const {
    return a > 0 ? a : a * static_cast<T>(slope);
  }
};
struct HardSigmoid {
  template <typename T>
  T operator()(T a) const {
    return Min::apply(Max::apply(a + 3, T{0}), T{6}) / 6;
  }
};
struct ClampNumbers {
  MapNumbers bounds;
  explicit ClampNumbers(const MapNumbers& numbers) : bounds(numbers) {}
  template <typename T>
  T operator()(T a) const {
    return Min::apply(Max::apply(a, bounds.get<T>(0)), bounds.get<T>(1));
  }
};

struct Clamp {
  template <typename T>
  T operator()(T a, T low, T high) const {
    return Min::apply(Max::apply(a, low), high);
  }
};
/// Exact at both ends.
struct Lerp {
  template <typename T>
  T operator()(T start, T end, T weight) const {
    const T way = end - start;
    return std::fabs(weight) < T{0.5} ? start + weight * way : end - way * (1 - weight);
  }
};
struct AddProduct {
  MapNumbers value;
  explicit AddProduct(const MapNumbers& numbers) : value(numbers) {}
  template <typename T>
  T operator()(T a, T b, T c) const {
    return Add::apply(a, Multiply::apply(Multiply::apply(value.get<T>(0), b), c));
  }
};
struct AddQuotient {
  MapNumbers value;
  explicit AddQuotient(const MapNumbers& numbers) : value(numbers) {}
  template <typename T>
  T operator()(T a, T b, T c) const {
    return a + value.get<T>(0) * b / c;
  }
};

struct Where {
  template <typename T>
  T operator()(bool condition, T a, T b) const {
    return condition ? a : b;
  }
};
/// Bits of that width are chosen, whatever they mean.
template <typename Bits>
constexpr MapRun kWhereBits = &map_three<Where, Bits, Boolean, Bits, Bits>;

}  // namespace

const MapOperator kNeg{"neg", Domain::numbers, one_number<Negate>()};
const MapOperator kAbs{"abs", Domain::numbers, one_number<Absolute>()};
const MapOperator kSign{"sign", Domain::numbers, one_number<Sign>()};
const MapOperator kSquare{"square", Domain::numbers, one_number<Square>()};
const MapOperator kReciprocal{"reciprocal", Domain::to_floating, one_floating<Reciprocal>()};
const MapOperator kSqrt{"sqrt", Domain::to_floating, one_floating<SquareRoot>()};
const MapOperator kRsqrt{"rsqrt", Domain::to_floating, one_floating<ReciprocalRoot>()};
const MapOperator kFloor{"floor", Domain::floating, one_floating<Floor>()};
const MapOperator kCeil{"ceil", Domain::floating, one_floating<Ceil>()};
const MapOperator kRound{"round", Domain::floating, one_floating<Round>()};
const MapOperator kTrunc{"trunc", Domain::floating, one_floating<Truncate>()};
const MapOperator kRelu{"relu", Domain::numbers, one_number<Relu>()};
const MapOperator kLeakyRelu{"leaky_relu", Domain::floating, one_floating<LeakyRelu>()};
const MapOperator kHardSigmoid{"hardsigmoid", Domain::floating, one_floating<HardSigmoid>()};
const MapOperator kClampNumbers{"clamp", Domain::numbers, one_number<ClampNumbers>()};
const MapOperator kHardtanh{"hardtanh", Domain::numbers, kClampNumbers.runs};
const MapOperator kClamp{"clamp", Domain::numbers, three_numbers<Clamp>()};
const MapOperator kLerp{"lerp", Domain::floating, three_floating<Lerp>()};
const MapOperator kAddcmul{"addcmul", Domain::numbers, three_numbers<AddProduct>()};
const MapOperator kAddcdiv{"addcdiv", Domain::floating, three_floating<AddQuotient>()};
const MapOperator kWhere{
    "where", Domain::all,
    MapRuns{{kWhereBits<std::uint64_t>, kWhereBits<std::uint32_t>, kWhereBits<std::uint16_t>,
             kWhereBits<std::uint16_t>, kWhereBits<std::uint64_t>, kWhereBits<std::uint32_t>,
             kWhereBits<std::uint8_t>, kWhereBits<std::uint8_t>}}};

}  // namespace dtrun::tensors
