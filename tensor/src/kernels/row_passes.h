// A row's passes, for the kernels of rows. Element i of a row goes to lane i mod 64, and lanes are
// added in pairs: i and i + 32 first. The elements behind the last sixteen join when there are 16
// lanes left. A pass keeps its lanes in registers: a short row takes little more time than its
// elements.
#pragma once

#include <algorithm>

#include "kernels/lane_group.h"
#include "kernels/row_kernel.h"
#include "kernels/vector_registers.h"

namespace dtrun::tensors {
namespace {

/// The lanes of a row: as many as hide the time that one addition takes.
constexpr int kRowGroups = 4;
constexpr std::int64_t kRowLanes = kRowGroups * kGroupLanes;

/// Fewer than kGroupLanes elements; those beyond are as good as any.
template <typename A>
struct LastLanes {
  A values[kGroupLanes];
  DTRUN_INLINED LastLanes(const A* source, std::int64_t count) {
    for (std::int64_t i = 0; i < kGroupLanes; ++i) values[i] = source[i < count ? i : 0];
  }
};

/// A function of groups, made of one of vectors: function(result, x...).
template <typename Function>
struct ByVectors {
  Function function;
  template <typename Group, typename... In>
  DTRUN_INLINED void operator()(Group& result, const In&... in) const {
#pragma GCC unroll 8
    for (int v = 0; v < Group::kVectors; ++v) function(result.part[v], in.part[v]...);
  }
};

template <typename A, int kBytes>
struct LoadedGroup {
  LaneGroup<A, kBytes> group;
  DTRUN_INLINED explicit LoadedGroup(const A* from) { load(group, from); }
};
template <typename A, int kBytes, typename Map, typename... In>
DTRUN_INLINED void map_group(LaneGroup<A, kBytes>& result, const Map& map, const In*... in) {
  map(result, LoadedGroup<A, kBytes>(in).group...);
}

template <typename A, int kBytes, typename Map, typename... In>
DTRUN_INLINED void map_row(A* out, std::int64_t count, const Map& map, const In*... in) {
  std::int64_t i = 0;
  LaneGroup<A, kBytes> group;
  for (; i + kGroupLanes <= count; i += kGroupLanes) {
    map_group(group, map, in + i...);
    store(out + i, group);
  }
  if (i == count) return;
  A last[kGroupLanes];
  map_group(group, map, LastLanes<A>(in + i, count - i).values...);
  store(last, group);
  std::copy_n(last, count - i, out + i);
}

/// What a pass does with the numbers that it folds.
enum class Keep { no, yes };

/// Folds map(in...).
/// @param out nullptr where they are not kept
template <typename Join, typename A, int kBytes, Keep kKeep = Keep::no, typename Map,
          typename... In>
DTRUN_INLINED A fold_row(A* out, std::int64_t count, const Map& map, const In*... in) {
  using Group = LaneGroup<A, kBytes>;
  Group lanes[kRowGroups], mapped;
#pragma GCC unroll 4
  for (int g = 0; g < kRowGroups; ++g) {
    for_each_part(lanes[g], [](auto& part, int) DTRUN_INLINED_LAMBDA {
      part = typename Group::Vector{} + Join::template kNeutral<A>;
    });
  }
  const auto take = [&](Group& into, std::int64_t i) DTRUN_INLINED_LAMBDA {
    map_group(mapped, map, in + i...);
    if constexpr (kKeep == Keep::yes) store(out + i, mapped);
    join<Join>(into, mapped);
  };
  std::int64_t i = 0;
  for (; i + kRowLanes <= count; i += kRowLanes) {
#pragma GCC unroll 4
    for (int g = 0; g < kRowGroups; ++g) take(lanes[g], i + g * kGroupLanes);
  }
#pragma GCC unroll 3
  for (int g = 0; g < kRowGroups - 1; ++g) {
    if (i + kGroupLanes > count) break;
    take(lanes[g], i);
    i += kGroupLanes;
  }
  join<Join>(lanes[0], lanes[2]);
  join<Join>(lanes[1], lanes[3]);
  join<Join>(lanes[0], lanes[1]);
  if (i < count) {
    A last[kGroupLanes];
    map_group(mapped, map, LastLanes<A>(in + i, count - i).values...);
    store(last, mapped);
    if constexpr (kKeep == Keep::yes) std::copy_n(last, count - i, out + i);
    std::fill(last + (count - i), last + kGroupLanes, Join::template kNeutral<A>);
    load(mapped, last);
    join<Join>(lanes[0], mapped);
  }
  return joined<Join>(lanes[0]);
}

template <typename A, int kBytes, typename Map, typename... In>
DTRUN_INLINED A sum_of_row(std::int64_t count, const Map& map, const In*... in) {
  return fold_row<AddLanes, A, kBytes>(static_cast<A*>(nullptr), count, map, in...);
}
struct Itself {
  template <typename Group>
  DTRUN_INLINED void operator()(Group& result, const Group& x) const {
    result = x;
  }
};
/// Rows side by side: as many as stay in the first cache, that of 16 lanes at most.
constexpr std::int64_t kMostBeside = 16;

/// step(rows, how many) with the next few rows each time.
template <typename A, typename Step>
DTRUN_INLINED void for_rows_beside(const Rows<A>& all, const Step& step) {
  constexpr std::int64_t kElements = 2048;
  const std::int64_t beside = std::clamp<std::int64_t>(kElements / all.count, 1, kMostBeside);
  for (std::int64_t first = 0; first < all.rows; first += beside) {
    Rows<A> some = all;
    some.out += first * all.out_step;
    some.in += first * all.in_step;
    some.rows = std::min(beside, all.rows - first);
    step(some, first);
  }
}

}  // namespace
}  // namespace dtrun::tensors

// A member of a struct of kernels, compiled for one set of vectors.
#define DTRUN_ROW_KERNEL(attribute, name)              \
  template <typename... Arguments>                     \
  attribute static void name(Arguments... arguments) { \
    By::name(arguments...);                            \
  }
