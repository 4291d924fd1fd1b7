#include "formulas/trigonometric.h"
#include "kernels/map_operators.h"
#include "kernels/wide_math.h"

namespace dtrun::tensors {
const MapOperator kSin{"sin", Domain::to_floating, MapFunction::sin,
                       one_floating<formulas::Sine>()};
const MapOperator kCos{"cos", Domain::to_floating, MapFunction::cos,
                       one_floating<formulas::Cosine>()};
const MapOperator kTan{"tan", Domain::to_floating, MapFunction::tan,
                       one_floating<formulas::Tangent>()};
const MapOperator kSinh{"sinh", Domain::to_floating, MapFunction::sinh,
                        one_floating<formulas::HyperbolicSine>()};
const MapOperator kCosh{"cosh", Domain::to_floating, MapFunction::cosh,
                        one_floating<formulas::HyperbolicCosine>()};
const MapOperator kTanh{"tanh", Domain::to_floating, MapFunction::tanh,
                        one_wide<MapFunction::tanh, formulas::HyperbolicTangent>()};
const MapOperator kAsin{"asin", Domain::to_floating, MapFunction::asin,
                        one_floating<formulas::ArcSine>()};
const MapOperator kAcos{"acos", Domain::to_floating, MapFunction::acos,
                        one_floating<formulas::ArcCosine>()};
const MapOperator kAtan{"atan", Domain::to_floating, MapFunction::atan,
                        one_floating<formulas::ArcTangent>()};
const MapOperator kAsinh{"asinh", Domain::to_floating, MapFunction::asinh,
                         one_floating<formulas::AreaSine>()};
const MapOperator kAcosh{"acosh", Domain::to_floating, MapFunction::acosh,
                         one_floating<formulas::AreaCosine>()};
const MapOperator kAtanh{"atanh", Domain::to_floating, MapFunction::atanh,
                         one_floating<formulas::AreaTangent>()};
const MapOperator kAtan2{"atan2", Domain::to_floating, MapFunction::atan2,
                         two_floating<formulas::ArcTangentOfTwo>()};
const MapOperator kPow{"pow", Domain::numbers, MapFunction::pow, two_numbers<formulas::Power>()};

}  // namespace dtrun::tensors
