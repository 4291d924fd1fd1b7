// Folds of a dense run: element i goes to lane i mod 16, the lanes are combined in pairs.
#pragma once

#include <cmath>
#include <cstdint>

#include "arithmetic.h"
#include "kernels/extreme.h"
#include "kernels/fold_kernel.h"
#include "kernels/vector_math.h"
#include "multiversion.h"

namespace dtrun::tensors {

template <typename Op>
constexpr std::int64_t kLanesOf = kFoldLanes;
/// Their order does not matter: as many as hide the time of one comparison.
template <typename Order>
constexpr std::int64_t kLanesOf<Extreme<Order>> = 64;

// What becomes of an element before.
struct Itself {
  template <typename A>
  A operator()(A x) const {
    return x;
  }
};
template <typename A>
struct SquaredDistance {
  A center;
  A operator()(A x) const { return (x - center) * (x - center); }
};
template <typename A>
struct ExpOfDistance {
  A center;
  A operator()(A x) const { return vector_math::exp(x - center); }
};

template <typename Op, std::int64_t kCount = kLanesOf<Op>, typename A>
A combine_lanes(A* lanes) {
  for (std::int64_t half = kCount / 2; half > 0; half /= 2) {
    for (std::int64_t lane = 0; lane < half; ++lane) {
      lanes[lane] = Op::apply(lanes[lane], lanes[lane + half]);
    }
  }
  return lanes[0];
}

template <typename Op, std::int64_t kCount = kLanesOf<Op>, typename A, typename Map>
DTRUN_MULTIVERSION void fill_lanes(A* lanes, const A* data, std::int64_t groups, Map map) {
  A local[kCount];
  for (std::int64_t lane = 0; lane < kCount; ++lane) local[lane] = neutral<Op, A>();
  for (std::int64_t group = 0; group < groups; ++group) {
    for (std::int64_t lane = 0; lane < kCount; ++lane) {
      local[lane] = Op::apply(local[lane], map(data[lane]));
    }
    data += kCount;
  }
  for (std::int64_t lane = 0; lane < kCount; ++lane) lanes[lane] = local[lane];
}

template <typename Op, std::int64_t kCount = kLanesOf<Op>, typename A, typename Map>
A fold_elements(const A* data, std::int64_t count, Map map) {
  A lanes[kCount];
  const std::int64_t groups = count / kCount;
  fill_lanes<Op, kCount>(lanes, data, groups, map);
  for (std::int64_t i = groups * kCount; i < count; ++i) {
    A& lane = lanes[i % kCount];
    lane = Op::apply(lane, map(data[i]));
  }
  return combine_lanes<Op, kCount>(lanes);
}

}  // namespace dtrun::tensors
