// Comparisons, logic, and what kind of number an element is.
#pragma once

#include <cmath>
#include <limits>

#include "host_device.h"

namespace dtrun::tensors::formulas {
namespace {

struct EqualTo {
  template <typename T>
  DTRUN_BOTH bool operator()(T a, T b) const {
    return a == b;
  }
};
struct NotEqualTo {
  template <typename T>
  DTRUN_BOTH bool operator()(T a, T b) const {
    return a != b;
  }
};
struct LessThan {
  template <typename T>
  DTRUN_BOTH bool operator()(T a, T b) const {
    return a < b;
  }
};
struct AtMost {
  template <typename T>
  DTRUN_BOTH bool operator()(T a, T b) const {
    return a <= b;
  }
};

struct LogicalAnd {
  DTRUN_BOTH bool operator()(bool a, bool b) const { return a & b; }
};
struct LogicalOr {
  DTRUN_BOTH bool operator()(bool a, bool b) const { return a | b; }
};
struct LogicalXor {
  DTRUN_BOTH bool operator()(bool a, bool b) const { return a != b; }
};
struct LogicalNot {
  DTRUN_BOTH bool operator()(bool a) const { return !a; }
};

struct IsNan {
  template <typename T>
  DTRUN_BOTH bool operator()(T a) const {
    return a != a;
  }
};
struct IsInf {
  template <typename T>
  DTRUN_BOTH bool operator()(T a) const {
    return std::fabs(a) > std::numeric_limits<T>::max();
  }
};
struct IsFinite {
  template <typename T>
  DTRUN_BOTH bool operator()(T a) const {
    return std::fabs(a) <= std::numeric_limits<T>::max();
  }
};

}  // namespace
}  // namespace dtrun::tensors::formulas
