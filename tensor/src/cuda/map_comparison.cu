#include "cuda/map_body.h"
#include "formulas/comparison.h"

namespace dtrun::tensors::cuda {
namespace {

/// 1 or 0, which the store makes a bool.
struct Comparison {
  template <typename C>
  DTRUN_BOTH static bool compare(MapFunction function, C a, C b) {
    switch (function) {
      case MapFunction::equal:
        return formulas::EqualTo{}(a, b);
      case MapFunction::not_equal:
        return formulas::NotEqualTo{}(a, b);
      case MapFunction::less:
        return formulas::LessThan{}(a, b);
      case MapFunction::less_equal:
        return formulas::AtMost{}(a, b);
      default:
        break;
    }
    if constexpr (std::is_floating_point_v<C>) {
      if (function == MapFunction::is_nan) return formulas::IsNan{}(a);
      if (function == MapFunction::is_inf) return formulas::IsInf{}(a);
      return formulas::IsFinite{}(a);
    }
    return false;
  }

  template <typename C>
  DTRUN_BOTH static C apply(const MapArguments& arguments, C a, C b, C) {
    return compare(arguments.function, a, b) ? C{1} : C{0};
  }
};

struct Logic {
  DTRUN_BOTH static bool apply(const MapArguments& arguments, bool a, bool b, bool) {
    switch (arguments.function) {
      case MapFunction::logical_and:
        return formulas::LogicalAnd{}(a, b);
      case MapFunction::logical_or:
        return formulas::LogicalOr{}(a, b);
      case MapFunction::logical_xor:
        return formulas::LogicalXor{}(a, b);
      default:
        return formulas::LogicalNot{}(a);
    }
  }
};

}  // namespace

void map_comparison(const MapCall& call) {
  if (call.compute == DType::boolean) return run_map<Logic, bool>(call);
  run_number_map<Comparison>(call);
}

}  // namespace dtrun::tensors::cuda
