#include "cuda/map_body.h"
#include "formulas/exponential.h"

namespace dtrun::tensors::cuda {
namespace {

struct Exponential {
  template <typename C>
  DTRUN_BOTH static C apply(const MapArguments& arguments, C a, C b, C) {
    switch (arguments.function) {
      case MapFunction::exp:
        return formulas::Exp{}(a);
      case MapFunction::log:
        return formulas::Log{}(a);
      case MapFunction::log2:
        return formulas::Log2{}(a);
      case MapFunction::log10:
        return formulas::Log10{}(a);
      case MapFunction::log1p:
        return formulas::Log1p{}(a);
      case MapFunction::expm1:
        return formulas::Expm1{}(a);
      case MapFunction::erf:
        return formulas::ErrorFunction{}(a);
      case MapFunction::erfc:
        return formulas::ErrorComplement{}(a);
      case MapFunction::sigmoid:
        return formulas::Sigmoid{}(a);
      case MapFunction::silu:
        return formulas::Silu{}(a);
      case MapFunction::gelu:
        return formulas::Gelu{}(a);
      case MapFunction::gelu_tanh:
        return formulas::GeluTanh{}(a);
      case MapFunction::mish:
        return formulas::Mish{}(a);
      case MapFunction::elu:
        return formulas::Elu(arguments.numbers)(a);
      case MapFunction::logaddexp:
        return formulas::LogAddExp{}(a, b);
      case MapFunction::sigmoid_backward:
        return formulas::SigmoidBackward{}(a, b);
      case MapFunction::tanh_backward:
        return formulas::TanhBackward{}(a, b);
      case MapFunction::silu_backward:
        return formulas::SiluBackward{}(a, b);
      case MapFunction::gelu_backward:
        return formulas::GeluBackward{}(a, b);
      case MapFunction::gelu_tanh_backward:
        return formulas::GeluTanhBackward{}(a, b);
      default:
        return formulas::Softplus(arguments.numbers)(a);
    }
  }
};

}  // namespace

void map_exponential(const MapCall& call) {
  run_floating_map<Exponential>(call);
}

}  // namespace dtrun::tensors::cuda
