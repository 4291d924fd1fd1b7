#include "cuda/map_body.h"
#include "formulas/quotients.h"

namespace dtrun::tensors::cuda {
namespace {

struct Arithmetic {
  /// An integer by 0 is 0, and told.
  template <typename Formula, typename C>
  DTRUN_BOTH static C divide(const MapArguments& arguments, C a, C b) {
    if constexpr (std::is_integral_v<C>) {
      if (b == 0) {
        if (arguments.has_zero != nullptr) *arguments.has_zero = 1;
        return 0;
      }
    }
    return Formula{}(a, b);
  }

  template <typename C>
  DTRUN_BOTH static C of_integers(MapFunction function, C a, C b) {
    switch (function) {
      case MapFunction::bit_and:
        return BitAnd::apply(a, b);
      case MapFunction::bit_or:
        return BitOr::apply(a, b);
      case MapFunction::bit_xor:
        return BitXor::apply(a, b);
      case MapFunction::bit_not:
        return formulas::BitNot{}(a);
      case MapFunction::shift_left:
        return formulas::ShiftLeft{}(a, b);
      case MapFunction::shift_right:
        return formulas::ShiftRight{}(a, b);
      default:
        return a;
    }
  }

  template <typename C>
  DTRUN_BOTH static C apply(const MapArguments& arguments, C a, C b, C) {
    switch (arguments.function) {
      case MapFunction::add:
        return Add::apply(a, b);
      case MapFunction::sub:
        return Subtract::apply(a, b);
      case MapFunction::mul:
        return Multiply::apply(a, b);
      case MapFunction::maximum:
        return Max::apply(a, b);
      case MapFunction::minimum:
        return Min::apply(a, b);
      case MapFunction::floor_divide:
        return divide<formulas::FloorDivide>(arguments, a, b);
      case MapFunction::trunc_divide:
        return divide<formulas::TruncDivide>(arguments, a, b);
      case MapFunction::remainder:
        return divide<formulas::Remainder>(arguments, a, b);
      case MapFunction::fmod:
        return divide<formulas::Fmod>(arguments, a, b);
      default:
        if constexpr (std::is_integral_v<C>) return of_integers(arguments.function, a, b);
        if constexpr (!std::is_integral_v<C>) return Divide::apply(a, b);
    }
  }
};

}  // namespace

void map_arithmetic(const MapCall& call) {
  run_number_map<Arithmetic>(call);
}

}  // namespace dtrun::tensors::cuda
