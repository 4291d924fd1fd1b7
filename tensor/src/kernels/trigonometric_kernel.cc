#include "arithmetic.h"
#include "kernels/map_operators.h"
#include "kernels/vector_math.h"

namespace dtrun::tensors {
namespace {

struct Sine {
  template <typename T>
  T operator()(T x) const {
    return vector_math::sin(x);
  }
};
struct Cosine {
  template <typename T>
  T operator()(T x) const {
    return vector_math::cos(x);
  }
};
struct Tangent {
  template <typename T>
  T operator()(T x) const {
    return vector_math::tan(x);
  }
};
struct HyperbolicSine {
  template <typename T>
  T operator()(T x) const {
    return vector_math::sinh(x);
  }
};
struct HyperbolicCosine {
  template <typename T>
  T operator()(T x) const {
    return vector_math::cosh(x);
  }
};
struct HyperbolicTangent {
  template <typename T>
  T operator()(T x) const {
    return vector_math::tanh(x);
  }
};
struct ArcSine {
  template <typename T>
  T operator()(T x) const {
    return vector_math::asin(x);
  }
};
struct ArcCosine {
  template <typename T>
  T operator()(T x) const {
    return vector_math::acos(x);
  }
};
struct ArcTangent {
  template <typename T>
  T operator()(T x) const {
    return vector_math::atan(x);
  }
};
struct AreaSine {
  template <typename T>
  T operator()(T x) const {
    return vector_math::asinh(x);
  }
};
struct AreaCosine {
  template <typename T>
  T operator()(T x) const {
    return vector_math::acosh(x);
  }
};
struct AreaTangent {
  template <typename T>
  T operator()(T x) const {
    return vector_math::atanh(x);
  }
};
struct ArcTangentOfTwo {
  template <typename T>
  T operator()(T y, T x) const {
    return vector_math::atan2(y, x);
  }
};

/// By squares, which wrap; a negative power of an integer is 0, but for 1 and -1.
template <typename T>
T integer_power(T base, T exponent) {
  if (exponent < 0) return base == 1 ? T{1} : base != -1 ? T{0} : exponent % 2 == 0 ? T{1} : T{-1};
  T result = 1;
  for (; exponent != 0; exponent /= 2) {
    if (exponent % 2 != 0) result = Multiply::apply(result, base);
    base = Multiply::apply(base, base);
  }
  return result;
}

struct Power {
  template <typename T>
  T operator()(T base, T exponent) const {
    if constexpr (std::is_integral_v<T>) return integer_power(base, exponent);
    if constexpr (!std::is_integral_v<T>) return vector_math::pow(base, exponent);
  }
};

}  // namespace

const MapOperator kSin{"sin", Domain::to_floating, one_floating<Sine>()};
const MapOperator kCos{"cos", Domain::to_floating, one_floating<Cosine>()};
const MapOperator kTan{"tan", Domain::to_floating, one_floating<Tangent>()};
const MapOperator kSinh{"sinh", Domain::to_floating, one_floating<HyperbolicSine>()};
const MapOperator kCosh{"cosh", Domain::to_floating, one_floating<HyperbolicCosine>()};
const MapOperator kTanh{"tanh", Domain::to_floating, one_floating<HyperbolicTangent>()};
const MapOperator kAsin{"asin", Domain::to_floating, one_floating<ArcSine>()};
const MapOperator kAcos{"acos", Domain::to_floating, one_floating<ArcCosine>()};
const MapOperator kAtan{"atan", Domain::to_floating, one_floating<ArcTangent>()};
const MapOperator kAsinh{"asinh", Domain::to_floating, one_floating<AreaSine>()};
const MapOperator kAcosh{"acosh", Domain::to_floating, one_floating<AreaCosine>()};
const MapOperator kAtanh{"atanh", Domain::to_floating, one_floating<AreaTangent>()};
const MapOperator kAtan2{"atan2", Domain::to_floating, two_floating<ArcTangentOfTwo>()};
const MapOperator kPow{"pow", Domain::numbers, two_numbers<Power>()};

}  // namespace dtrun::tensors
