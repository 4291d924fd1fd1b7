#include "formulas/exponential.h"
#include "kernels/map_operators.h"
#include "kernels/wide_math.h"

namespace dtrun::tensors {
const MapOperator kExp{"exp", Domain::to_floating, MapFunction::exp,
                       one_wide<MapFunction::exp, formulas::Exp>()};
const MapOperator kLog{"log", Domain::to_floating, MapFunction::log, one_floating<formulas::Log>()};
const MapOperator kLog2{"log2", Domain::to_floating, MapFunction::log2,
                        one_floating<formulas::Log2>()};
const MapOperator kLog10{"log10", Domain::to_floating, MapFunction::log10,
                         one_floating<formulas::Log10>()};
const MapOperator kLog1p{"log1p", Domain::to_floating, MapFunction::log1p,
                         one_floating<formulas::Log1p>()};
const MapOperator kExpm1{"expm1", Domain::to_floating, MapFunction::expm1,
                         one_floating<formulas::Expm1>()};
const MapOperator kErf{"erf", Domain::to_floating, MapFunction::erf,
                       one_wide<MapFunction::erf, formulas::ErrorFunction>()};
const MapOperator kErfc{"erfc", Domain::to_floating, MapFunction::erfc,
                        one_floating<formulas::ErrorComplement>()};
const MapOperator kSigmoid{"sigmoid", Domain::to_floating, MapFunction::sigmoid,
                           one_wide<MapFunction::sigmoid, formulas::Sigmoid>()};
const MapOperator kSilu{"silu", Domain::floating, MapFunction::silu,
                        one_wide<MapFunction::silu, formulas::Silu>()};
const MapOperator kGelu{"gelu", Domain::floating, MapFunction::gelu,
                        one_wide<MapFunction::gelu, formulas::Gelu>()};
const MapOperator kGeluTanh{"gelu", Domain::floating, MapFunction::gelu_tanh,
                            one_wide<MapFunction::gelu_tanh, formulas::GeluTanh>()};
const MapOperator kMish{"mish", Domain::floating, MapFunction::mish,
                        one_floating<formulas::Mish>()};
const MapOperator kElu{"elu", Domain::floating, MapFunction::elu, one_floating<formulas::Elu>()};
const MapOperator kLogAddExp{"logaddexp", Domain::floating, MapFunction::logaddexp,
                             two_floating<formulas::LogAddExp>()};
const MapOperator kSigmoidBackward{"sigmoid_backward",
                                   Domain::floating,
                                   MapFunction::sigmoid_backward,
                                   two_floating<formulas::SigmoidBackward>(),
                                   MapResult::same,
                                   &map_two_bf16<formulas::SigmoidBackward>};
const MapOperator kTanhBackward{"tanh_backward",
                                Domain::floating,
                                MapFunction::tanh_backward,
                                two_floating<formulas::TanhBackward>(),
                                MapResult::same,
                                &map_two_bf16<formulas::TanhBackward>};
const MapOperator kSiluBackward{"silu_backward", Domain::floating, MapFunction::silu_backward,
                                two_floating<formulas::SiluBackward>()};
const MapOperator kGeluBackward{"gelu_backward", Domain::floating, MapFunction::gelu_backward,
                                two_wide<MapFunction::gelu_backward, formulas::GeluBackward>()};
const MapOperator kGeluTanhBackward{"gelu_backward", Domain::floating,
                                    MapFunction::gelu_tanh_backward,
                                    two_floating<formulas::GeluTanhBackward>()};
const MapOperator kSoftplus{"softplus", Domain::floating, MapFunction::softplus,
                            one_floating<formulas::Softplus>()};

}  // namespace dtrun::tensors
