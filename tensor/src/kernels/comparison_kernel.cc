#include <cmath>

#include "kernels/map_operators.h"

namespace dtrun::tensors {
namespace {

struct EqualTo {
  template <typename T>
  bool operator()(T a, T b) const {
    return a == b;
  }
};
struct NotEqualTo {
  template <typename T>
  bool operator()(T a, T b) const {
    return a != b;
  }
};
struct LessThan {
  template <typename T>
  bool operator()(T a, T b) const {
    return a < b;
  }
};
struct AtMost {
  template <typename T>
  bool operator()(T a, T b) const {
    return a <= b;
  }
};

struct LogicalAnd {
  bool operator()(bool a, bool b) const { return a & b; }
};
struct LogicalOr {
  bool operator()(bool a, bool b) const { return a | b; }
};
struct LogicalXor {
  bool operator()(bool a, bool b) const { return a != b; }
};
struct LogicalNot {
  bool operator()(bool a) const { return !a; }
};

struct IsNan {
  template <typename T>
  bool operator()(T a) const {
    return a != a;
  }
};
struct IsInf {
  template <typename T>
  bool operator()(T a) const {
    return std::fabs(a) > std::numeric_limits<T>::max();
  }
};
struct IsFinite {
  template <typename T>
  bool operator()(T a) const {
    return std::fabs(a) <= std::numeric_limits<T>::max();
  }
};

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

const MapOperator kEqual{"eq", Domain::all, comparison<EqualTo>(), MapResult::boolean};
const MapOperator kNotEqual{"ne", Domain::all, comparison<NotEqualTo>(), MapResult::boolean};
const MapOperator kLess{"lt", Domain::all, comparison<LessThan>(), MapResult::boolean};
const MapOperator kLessEqual{"le", Domain::all, comparison<AtMost>(), MapResult::boolean};
const MapOperator kLogicalAnd{"logical_and", Domain::as_bool, logic<LogicalAnd>(),
                              MapResult::boolean};
const MapOperator kLogicalOr{"logical_or", Domain::as_bool, logic<LogicalOr>(), MapResult::boolean};
const MapOperator kLogicalXor{"logical_xor", Domain::as_bool, logic<LogicalXor>(),
                              MapResult::boolean};
const MapOperator kLogicalNot{
    "logical_not", Domain::as_bool,
    MapRuns{}.with(DType::boolean, &map_one<LogicalNot, Boolean, Boolean>), MapResult::boolean};
const MapOperator kIsNan{"isnan", Domain::to_floating, classification<IsNan>(), MapResult::boolean};
const MapOperator kIsInf{"isinf", Domain::to_floating, classification<IsInf>(), MapResult::boolean};
const MapOperator kIsFinite{"isfinite", Domain::to_floating, classification<IsFinite>(),
                            MapResult::boolean};

}  // namespace dtrun::tensors
