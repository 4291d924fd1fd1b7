#include "cuda/map_body.h"
#include "formulas/trigonometric.h"

namespace dtrun::tensors::cuda {
namespace {

struct Trigonometric {
  template <typename C>
  DTRUN_BOTH static C apply(const MapArguments& arguments, C a, C b, C) {
    switch (arguments.function) {
      case MapFunction::sin:
        return formulas::Sine{}(a);
      case MapFunction::cos:
        return formulas::Cosine{}(a);
      case MapFunction::tan:
        return formulas::Tangent{}(a);
      case MapFunction::sinh:
        return formulas::HyperbolicSine{}(a);
      case MapFunction::cosh:
        return formulas::HyperbolicCosine{}(a);
      case MapFunction::tanh:
        return formulas::HyperbolicTangent{}(a);
      case MapFunction::asin:
        return formulas::ArcSine{}(a);
      case MapFunction::acos:
        return formulas::ArcCosine{}(a);
      case MapFunction::atan:
        return formulas::ArcTangent{}(a);
      case MapFunction::asinh:
        return formulas::AreaSine{}(a);
      case MapFunction::acosh:
        return formulas::AreaCosine{}(a);
      case MapFunction::atanh:
        return formulas::AreaTangent{}(a);
      case MapFunction::atan2:
        return formulas::ArcTangentOfTwo{}(a, b);
      default:
        return formulas::Power{}(a, b);
    }
  }
};

struct IntegerPower {
  template <typename C>
  DTRUN_BOTH static C apply(const MapArguments&, C a, C b, C) {
    return formulas::Power{}(a, b);
  }
};

}  // namespace

void map_trigonometric(const MapCall& call) {
  if (call.compute == DType::i64) return run_map<IntegerPower, std::int64_t>(call);
  if (call.compute == DType::i32) return run_map<IntegerPower, std::int32_t>(call);
  run_floating_map<Trigonometric>(call);
}

}  // namespace dtrun::tensors::cuda
