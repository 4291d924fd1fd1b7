// Four runs of a fold, read one after the other, without asking for lines: they come soonest so to
// AMD's processors with AVX-512. A Zen 4 reads 4 MiB from the last cache in 41 us so, and in 53 to
// 60 where lines are asked for far ahead. The same bits as fill_lanes_of_four (fold_lanes.h), but
// for the sign of a nan where nans of both signs meet.
#pragma once

#include <cstdint>

#include "kernels/fold_kernel.h"
#include "kernels/fold_pairs.h"
#include "kernels/lane_tree.h"
#include "kernels/vector_registers.h"

#if defined(__x86_64__)
namespace dtrun::tensors {

/// `fours` times four runs, one after the other. Lanes of f32 are one register: while an addition
/// waits for the one before it, the processor has begun with the next run.
/// @param lanes of the last four
template <typename Op, typename Map, typename A>
DTRUN_WITH_AVX512 void fill_lanes_in_order(A* lanes, A* states, const A* data, std::int64_t step,
                                           std::int64_t groups, std::int64_t fours) {
  for (; fours > 0; --fours, states += kFoldsAtOnce) {
#pragma GCC unroll 4
    for (std::int64_t run = 0; run < kFoldsAtOnce; ++run, data += step)
      fill_lanes_of<Op, Map, 1, 64>(lanes + run * kFoldLanes, data, step, groups);
    if constexpr (sizeof(A) == 4) {
      combine_wide_lanes<Op>(states, lanes);
    } else {
      combine_lanes_of_four<Op>(states, lanes);
    }
  }
}

}  // namespace dtrun::tensors
#endif
