#include "cuda/map_body.h"
#include "formulas/elementary.h"

namespace dtrun::tensors::cuda {
namespace {

struct Elementary {
  template <typename C>
  DTRUN_BOTH static C of_floating(const MapArguments& arguments, C a, C b, C c) {
    switch (arguments.function) {
      case MapFunction::reciprocal:
        return formulas::Reciprocal{}(a);
      case MapFunction::sqrt:
        return formulas::SquareRoot{}(a);
      case MapFunction::rsqrt:
        return formulas::ReciprocalRoot{}(a);
      case MapFunction::floor:
        return formulas::Floor{}(a);
      case MapFunction::ceil:
        return formulas::Ceil{}(a);
      case MapFunction::round:
        return formulas::Round{}(a);
      case MapFunction::trunc:
        return formulas::Truncate{}(a);
      case MapFunction::leaky_relu:
        return formulas::LeakyRelu(arguments.numbers)(a);
      case MapFunction::hardsigmoid:
        return formulas::HardSigmoid{}(a);
      case MapFunction::lerp:
        return formulas::Lerp{}(a, b, c);
      case MapFunction::addcdiv:
        return formulas::AddQuotient(arguments.numbers)(a, b, c);
      default:
        return a;
    }
  }

  template <typename C>
  DTRUN_BOTH static C apply(const MapArguments& arguments, C a, C b, C c) {
    switch (arguments.function) {
      case MapFunction::neg:
        return formulas::Negate{}(a);
      case MapFunction::abs:
        return formulas::Absolute{}(a);
      case MapFunction::sign:
        return formulas::Sign{}(a);
      case MapFunction::square:
        return formulas::Square{}(a);
      case MapFunction::relu:
        return formulas::Relu{}(a);
      case MapFunction::clamp_numbers:
        return formulas::ClampNumbers(arguments.numbers)(a);
      case MapFunction::clamp:
        return formulas::Clamp{}(a, b, c);
      case MapFunction::addcmul:
        return formulas::AddProduct(arguments.numbers)(a, b, c);
      case MapFunction::where:
        return formulas::Where{}(a != C{0}, b, c);
      default:
        if constexpr (std::is_floating_point_v<C>) return of_floating(arguments, a, b, c);
        return a;
    }
  }
};

}  // namespace

void map_elementary(const MapCall& call) {
  run_number_map<Elementary>(call);
}

}  // namespace dtrun::tensors::cuda
