// Folds of a dense run: element i goes to lane i mod 16, the lanes are combined in pairs.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "arithmetic.h"
#include "kernels/fold_kernel.h"
#include "kernels/vector_math.h"
#include "multiversion.h"

namespace dtrun::tensors {

// What lanes begin with.
template <typename Op, typename A>
A neutral() {
  if constexpr (std::is_same_v<Op, Multiply>) return A{1};
  if constexpr (std::is_same_v<Op, Add>) return A{0};
  constexpr bool kFloating = std::is_floating_point_v<A>;
  if constexpr (std::is_same_v<Op, Max>)
    return kFloating ? -std::numeric_limits<A>::infinity() : std::numeric_limits<A>::lowest();
  if constexpr (std::is_same_v<Op, Min>)
    return kFloating ? std::numeric_limits<A>::infinity() : std::numeric_limits<A>::max();
}

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

template <typename Op, typename A>
A combine_lanes(A* lanes) {
  for (std::int64_t half = kFoldLanes / 2; half > 0; half /= 2) {
    for (std::int64_t lane = 0; lane < half; ++lane) {
      lanes[lane] = Op::apply(lanes[lane], lanes[lane + half]);
    }
  }
  return lanes[0];
}

template <typename Op, typename A, typename Map>
DTRUN_MULTIVERSION void fill_lanes(A* lanes, const A* data, std::int64_t groups, Map map) {
  A local[kFoldLanes];
  for (std::int64_t lane = 0; lane < kFoldLanes; ++lane) local[lane] = neutral<Op, A>();
  for (std::int64_t group = 0; group < groups; ++group) {
    for (std::int64_t lane = 0; lane < kFoldLanes; ++lane) {
      local[lane] = Op::apply(local[lane], map(data[lane]));
    }
    data += kFoldLanes;
  }
  for (std::int64_t lane = 0; lane < kFoldLanes; ++lane) lanes[lane] = local[lane];
}

template <typename Op, typename A, typename Map>
A fold_elements(const A* data, std::int64_t count, Map map) {
  A lanes[kFoldLanes];
  const std::int64_t groups = count / kFoldLanes;
  fill_lanes<Op>(lanes, data, groups, map);
  for (std::int64_t i = groups * kFoldLanes; i < count; ++i) {
    A& lane = lanes[i % kFoldLanes];
    lane = Op::apply(lane, map(data[i]));
  }
  return combine_lanes<Op>(lanes);
}

}  // namespace dtrun::tensors
