// Folds of a dense run: element i goes to lane i mod 16, the lanes are combined in pairs. T is how
// elements lie in memory, A what they are computed in.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "arithmetic.h"
#include "element.h"
#include "kernels/extreme_lanes.h"
#include "kernels/fetch_ahead.h"
#include "kernels/fold_in_order.h"
#include "kernels/fold_kernel.h"
#include "kernels/fold_pairs.h"
#include "kernels/lane_tree.h"
#include "kernels/vector_math.h"
#include "kernels/vector_registers.h"
#include "multiversion.h"

namespace dtrun::tensors {

// What becomes of an element before. on(): the same of a vector of elements.
struct Itself {
  template <typename A>
  A operator()(A x) const {
    return x;
  }
  template <typename V>
  static void on(V&) {}
};
struct Magnitude {
  template <typename A>
  A operator()(A x) const {
    return std::fabs(x);
  }
  template <typename V>
  static void on(V& x) {
    using Bits = decltype(x < x);
    using Word = std::remove_cvref_t<decltype(Bits{}[0])>;
    x = (V)((Bits)x & std::numeric_limits<Word>::max());
  }
};
struct Squared {
  template <typename A>
  A operator()(A x) const {
    return x * x;
  }
  template <typename V>
  static void on(V& x) {
    x *= x;
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

template <typename Op, std::int64_t kCount = kLanesOf<Op>, typename A, typename T, typename Map>
DTRUN_MULTIVERSION void fill_lanes(A* lanes, const T* data, std::int64_t groups, Map map) {
  A local[kCount];
  for (std::int64_t lane = 0; lane < kCount; ++lane) local[lane] = neutral<Op, A>();
  for (std::int64_t group = 0; group < groups; ++group) {
    for (std::int64_t lane = 0; lane < kCount; ++lane) {
      local[lane] = Op::apply(local[lane], map(Element<T>::load(data[lane])));
    }
    data += kCount;
  }
  for (std::int64_t lane = 0; lane < kCount; ++lane) lanes[lane] = local[lane];
}

/// All lanes, so that a function has the same bits in every place.
template <std::int64_t kCount, typename A, typename T, typename Map>
DTRUN_MULTIVERSION void map_last_lanes(A* mapped, const T* last, Map map) {
  for (std::int64_t lane = 0; lane < kCount; ++lane) {
    mapped[lane] = map(Element<T>::load(last[lane]));
  }
}

/// The elements behind the last group, fewer than kCount.
template <typename Op, std::int64_t kCount, typename T, typename Map>
void fold_last(ComputeType<T>* lanes, const T* data, std::int64_t count, Map map) {
  if (count == 0) return;
  if constexpr (std::is_same_v<Map, Itself>) {
    for (std::int64_t i = 0; i < count; ++i)
      lanes[i] = Op::apply(lanes[i], Element<T>::load(data[i]));
  } else {
    T last[kCount];
    for (std::int64_t i = 0; i < kCount; ++i) last[i] = data[i < count ? i : 0];
    ComputeType<T> mapped[kCount];
    map_last_lanes<kCount>(mapped, last, map);
    for (std::int64_t i = 0; i < count; ++i) lanes[i] = Op::apply(lanes[i], mapped[i]);
  }
}

template <typename Op, std::int64_t kCount = kLanesOf<Op>, typename T, typename Map>
ComputeType<T> fold_in_lanes(const T* data, std::int64_t count, Map map) {
  ComputeType<T> lanes[kCount];
  const std::int64_t body = count - count % kCount;
  fill_lanes<Op, kCount>(lanes, data, body / kCount, map);
  fold_last<Op, kCount>(lanes, data + body, count - body, map);
  return combine_lanes<Op, kCount>(lanes);
}

/// @param states of the lanes, right where no elements are left behind them
template <typename Op, typename A, typename T, typename Map>
DTRUN_MULTIVERSION void fill_lanes_of_four(A* lanes, A* states, const T* data, std::int64_t step,
                                           std::int64_t groups, FetchAhead ahead, Map map) {
  A a[kFoldLanes], b[kFoldLanes], c[kFoldLanes], d[kFoldLanes];
  for (std::int64_t lane = 0; lane < kFoldLanes; ++lane) {
    a[lane] = b[lane] = c[lane] = d[lane] = neutral<Op, A>();
  }
  const T* next = data + kFoldsAtOnce * step;
  for (std::int64_t group = 0; group < groups; ++group) {
    for (std::int64_t i = 0; i < kFoldsAtOnce; ++i) __builtin_prefetch(next + i * ahead.between);
    next += ahead.on;
    for (std::int64_t lane = 0; lane < kFoldLanes; ++lane) {
      a[lane] = Op::apply(a[lane], map(Element<T>::load(data[lane])));
      b[lane] = Op::apply(b[lane], map(Element<T>::load(data[step + lane])));
      c[lane] = Op::apply(c[lane], map(Element<T>::load(data[2 * step + lane])));
      d[lane] = Op::apply(d[lane], map(Element<T>::load(data[3 * step + lane])));
    }
    data += kFoldLanes;
  }
  for (std::int64_t lane = 0; lane < kFoldLanes; ++lane) {
    lanes[lane] = a[lane];
    lanes[kFoldLanes + lane] = b[lane];
    lanes[2 * kFoldLanes + lane] = c[lane];
    lanes[3 * kFoldLanes + lane] = d[lane];
  }
  combine_lanes_of_four<Op>(states, lanes);
}

#if defined(__x86_64__)
template <typename Op, typename Map, typename A>
DTRUN_WITH_AVX2 void fill_lanes_by_pairs(A* lanes, A* states, const A* data, std::int64_t step,
                                         std::int64_t groups) {
  constexpr std::int64_t kPair = kFoldsAtOnce / 2;
  fill_lanes_of<Op, Map, kPair, 32>(lanes, data, step, groups);
  fill_lanes_of<Op, Map, kPair, 32>(lanes + kPair * kFoldLanes, data + kPair * step, step, groups);
  combine_lanes_of_four<Op>(states, lanes);
}
#endif

/// The same sums of bf16. A word of 32 bits has two elements, of which each is a float when the
/// other is masked or shifted away, so nothing moves between the parts of a register: the
/// compiler's own widening of 16 halves takes three such moves, and 1.8 times as long.
template <typename T, typename Map>
DTRUN_MULTIVERSION void add_lanes_of_four(float* lanes, float* states, const T* data,
                                          std::int64_t step, std::int64_t groups,
                                          FetchAhead ahead) {
  constexpr std::int64_t kWords = kFoldLanes / 2;
  typedef float Lanes __attribute__((vector_size(kWords * sizeof(float))));
  typedef std::uint32_t Words __attribute__((vector_size(kWords * sizeof(std::uint32_t))));
  static_assert(std::endian::native == std::endian::little, "the first of two is the low half");
  Lanes even[kFoldsAtOnce] = {}, odd[kFoldsAtOnce] = {};
  const T* next = data + kFoldsAtOnce * step;
  for (std::int64_t group = 0; group < groups; ++group) {
    // A line of memory has two groups.
    if (group % 2 == 0) {
      for (std::int64_t i = 0; i < kFoldsAtOnce; ++i) {
        __builtin_prefetch(next + i * ahead.between);
      }
      next += ahead.on;
    }
#pragma GCC unroll 4
    for (std::int64_t run = 0; run < kFoldsAtOnce; ++run) {
      Words words;
      std::memcpy(&words, data + run * step, sizeof words);
      Lanes first = (Lanes)(words << 16), second = (Lanes)(words & 0xffff0000u);
      Map::on(first);
      Map::on(second);
      even[run] += first;
      odd[run] += second;
    }
    data += kFoldLanes;
  }
#pragma GCC unroll 4
  for (std::int64_t run = 0; run < kFoldsAtOnce; ++run) {
    const Lanes first = __builtin_shufflevector(even[run], odd[run], 0, 8, 1, 9, 2, 10, 3, 11);
    const Lanes second = __builtin_shufflevector(even[run], odd[run], 4, 12, 5, 13, 6, 14, 7, 15);
    std::memcpy(lanes + run * kFoldLanes, &first, sizeof first);
    std::memcpy(lanes + run * kFoldLanes + kWords, &second, sizeof second);
  }
  combine_lanes_of_four<Add>(states, lanes);
}

/// As the processor likes it.
template <typename Op, typename T, typename Map>
void fill_four(T* lanes, T* states, const T* data, std::int64_t step, std::int64_t groups,
               Map map) {
#if defined(__x86_64__)
  if (is_amd_with_avx512())
    return fill_lanes_in_order<Op, Map>(lanes, states, data, step, groups, 1);
  if (reads_by_pairs()) return fill_lanes_by_pairs<Op, Map>(lanes, states, data, step, groups);
#endif
  fill_lanes_of_four<Op>(lanes, states, data, step, groups, fetch_ahead(step, kFoldLanes), map);
}

/// Four runs of `count` elements, `step` elements apart, each as fold_in_lanes folds it.
template <typename Op, typename T, typename Map>
void fold_four(ComputeType<T>* states, const T* data, std::int64_t step, std::int64_t count,
               Map map) {
  ComputeType<T> lanes[kFoldsAtOnce * kFoldLanes];
  const std::int64_t body = count - count % kFoldLanes, groups = body / kFoldLanes;
  if constexpr (std::is_same_v<Op, Add> && std::is_same_v<T, BFloat16>) {
    add_lanes_of_four<T, Map>(lanes, states, data, step, groups, fetch_ahead(step, 2 * kFoldLanes));
  } else {
    fill_four<Op>(lanes, states, data, step, groups, map);
  }
  if (body == count) return;
  for (std::int64_t run = 0; run < kFoldsAtOnce; ++run) {
    ComputeType<T>* const own = lanes + run * kFoldLanes;
    fold_last<Op, kFoldLanes>(own, data + run * step + body, count - body, map);
    states[run] = combine_lanes<Op, kFoldLanes>(own);
  }
}

/// Such fours, one behind the other.
template <typename Op, typename T, typename Map>
void fold_fours(ComputeType<T>* states, const T* data, std::int64_t step, std::int64_t count,
                std::int64_t fours, Map map) {
#if defined(__x86_64__)
  if constexpr (std::is_same_v<T, ComputeType<T>>) {
    if (count % kFoldLanes == 0 && is_amd_with_avx512()) {
      T lanes[kFoldsAtOnce * kFoldLanes];
      return fill_lanes_in_order<Op, Map>(lanes, states, data, step, count / kFoldLanes, fours);
    }
  }
#endif
  for (; fours > 0; --fours, states += kFoldsAtOnce, data += kFoldsAtOnce * step)
    fold_four<Op>(states, data, step, count, map);
}

/// Extreme's own comparison only where an element is a nan or the result is 0.
template <typename Order, typename A>
A extreme_of(const A* data, std::int64_t count) {
  using Op = Extreme<Order>;
  constexpr std::int64_t kCount = kLanesOf<Op>;
  const std::int64_t groups = count / kCount;
  A choice;
  if (groups == 0 || choose_all<Order>(choice, data, groups))
    return fold_in_lanes<Op>(data, count, Itself{});
  for (std::int64_t i = groups * kCount; i < count; ++i) choice = Op::apply(choice, data[i]);
  return choice == 0 ? fold_in_lanes<Op>(data, count, Itself{}) : choice;
}

template <typename Op>
constexpr bool kIsExtreme = false;
template <typename Order>
constexpr bool kIsExtreme<Extreme<Order>> = true;

template <typename Op, std::int64_t kCount = kLanesOf<Op>, typename T, typename Map>
ComputeType<T> fold_elements(const T* data, std::int64_t count, Map map) {
  if constexpr (kIsExtreme<Op> && std::is_floating_point_v<T> && std::is_same_v<Map, Itself>) {
    return extreme_of<typename Op::Direction>(data, count);
  } else {
    return fold_in_lanes<Op, kCount>(data, count, map);
  }
}

}  // namespace dtrun::tensors
