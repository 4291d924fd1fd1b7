// Four runs of a fold, read two at a time: for processors with AVX2 whose first cache has no room
// for four runs of f32 and the next four (AMD's before Zen 5: 32 KiB). Zen 3 sums 4 MiB in 54 us
// so, in 57 with four at a time; reading them alone takes 52. The same bits as
// fill_lanes_of_four (fold_lanes.h), but for the sign of a nan where nans of both signs meet.
#pragma once

#include <cstdint>
#include <cstring>

#include "arithmetic.h"
#include "kernels/extreme.h"
#include "kernels/fold_kernel.h"
#include "kernels/lane_tree.h"
#include "kernels/vector_registers.h"

#if defined(__x86_64__)
namespace dtrun::tensors {

inline bool reads_by_pairs() {
  static const bool pairs =
      __builtin_cpu_is("amd") != 0 && vector_registers() == VectorRegisters::avx2;
  return pairs;
}

/// In vectors of kBytes, so that they stay in registers and are read again as they were written.
template <typename A, int kBytes>
struct WideLanes {
  static constexpr std::int64_t kWide = kBytes / sizeof(A);
  static constexpr std::int64_t kParts = kFoldLanes / kWide;
  typedef Wrapping<A> Vector __attribute__((vector_size(kBytes)));
};

/// Joins a group of lanes of each run to the lanes so far.
template <typename Op, typename Map, typename Wide, std::int64_t kParts, typename A>
[[gnu::always_inline]] inline void join_group(typename Wide::Vector (&own)[kParts], const A* data,
                                              std::int64_t step) {
#pragma GCC unroll 8
  for (std::int64_t part = 0; part < kParts; ++part) {
    const A* const from = data + part / Wide::kParts * step;
    typename Wide::Vector x;
    std::memcpy(&x, from + part % Wide::kParts * Wide::kWide, sizeof x);
    Map::on(x);
    join_vectors<Op>(own[part], x);
  }
}

/// kRuns runs, `step` elements apart. Of more than one it asks for the next ones.
/// @param lanes of all
template <typename Op, typename Map, std::int64_t kRuns, int kBytes, typename A>
[[gnu::always_inline]] inline void fill_lanes_of(A* lanes, const A* data, std::int64_t step,
                                                 std::int64_t groups) {
  using Wide = WideLanes<A, kBytes>;
  using Vector = typename Wide::Vector;
  constexpr std::int64_t kParts = kRuns * Wide::kParts;
  Vector own[kParts] = {};
#pragma GCC unroll 8
  for (std::int64_t part = 0; part < kParts; ++part) own[part] += neutral<Op, A>();
  if constexpr (kRuns == 1) {
    // Fewer branches: more loads fit among the instructions that wait.
#pragma GCC unroll 8
    for (std::int64_t group = 0; group < groups; ++group, data += kFoldLanes)
      join_group<Op, Map, Wide>(own, data, step);
  } else {
    const A* next = data + kRuns * step;
    for (std::int64_t group = 0; group < groups; ++group, data += kFoldLanes) {
      // In the order of memory.
#pragma GCC unroll 8
      for (std::int64_t run = 0; run < kRuns; ++run) __builtin_prefetch(next + run * kFoldLanes);
      next += kRuns * kFoldLanes;
      join_group<Op, Map, Wide>(own, data, step);
    }
  }
#pragma GCC unroll 8
  for (std::int64_t part = 0; part < kParts; ++part)
    std::memcpy(lanes + part * Wide::kWide, &own[part], sizeof(Vector));
}

}  // namespace dtrun::tensors
#endif
