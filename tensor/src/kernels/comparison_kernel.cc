#include "formulas/comparison.h"
#include "kernels/map_operators.h"

namespace dtrun::tensors {
namespace {

template <typename F>
constexpr MapRuns comparison() {
  return MapRuns{}
      .with(DType::f64, &map_two<F, Boolean, double, double>)
      .with(DType::f32, &map_two<F, Boolean, float, float>)
      .with(DType::i64, &map_two<F, Boolean, std::int64_t, std::int64_t>)
      .with(DType::i32, &map_two<F, Boolean, std::int32_t, std::int32_t>);
}
template <typename F>
constexpr MapRuns logic() {
  return MapRuns{}.with(DType::boolean, &map_two<F, Boolean, Boolean, Boolean>);
}
template <typename F>
constexpr MapRuns classification() {
  return MapRuns{}
      .with(DType::f64, &map_one<F, Boolean, double>)
      .with(DType::f32, &map_one<F, Boolean, float>);
}

}  // namespace

const MapOperator kEqual{"eq", Domain::all, MapFunction::equal, comparison<formulas::EqualTo>(),
                         MapResult::boolean};
const MapOperator kNotEqual{"ne", Domain::all, MapFunction::not_equal,
                            comparison<formulas::NotEqualTo>(), MapResult::boolean};
const MapOperator kLess{"lt", Domain::all, MapFunction::less, comparison<formulas::LessThan>(),
                        MapResult::boolean};
const MapOperator kLessEqual{"le", Domain::all, MapFunction::less_equal,
                             comparison<formulas::AtMost>(), MapResult::boolean};
const MapOperator kLogicalAnd{"logical_and", Domain::as_bool, MapFunction::logical_and,
                              logic<formulas::LogicalAnd>(), MapResult::boolean};
const MapOperator kLogicalOr{"logical_or", Domain::as_bool, MapFunction::logical_or,
                             logic<formulas::LogicalOr>(), MapResult::boolean};
const MapOperator kLogicalXor{"logical_xor", Domain::as_bool, MapFunction::logical_xor,
                              logic<formulas::LogicalXor>(), MapResult::boolean};
const MapOperator kLogicalNot{
    "logical_not", Domain::as_bool, MapFunction::logical_not,
    MapRuns{}.with(DType::boolean, &map_one<formulas::LogicalNot, Boolean, Boolean>),
    MapResult::boolean};
const MapOperator kIsNan{"isnan", Domain::to_floating, MapFunction::is_nan,
                         classification<formulas::IsNan>(), MapResult::boolean};
const MapOperator kIsInf{"isinf", Domain::to_floating, MapFunction::is_inf,
                         classification<formulas::IsInf>(), MapResult::boolean};
const MapOperator kIsFinite{"isfinite", Domain::to_floating, MapFunction::is_finite,
                            classification<formulas::IsFinite>(), MapResult::boolean};

}  // namespace dtrun::tensors
