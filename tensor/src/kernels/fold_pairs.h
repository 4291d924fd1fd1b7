// Four runs of a fold, read two at a time: for processors with AVX2 whose first cache has no room
// for four runs of f32 and the next four (AMD's before Zen 4: 32 KiB). Zen 3 sums 4 MiB in 54 us
// so, in 57 with four at a time; reading them alone takes 52. The same bits as
// fill_lanes_of_four (fold_lanes.h).
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "arithmetic.h"
#include "kernels/extreme.h"
#include "kernels/fold_kernel.h"
#include "kernels/vector_registers.h"

#if defined(__x86_64__)
namespace dtrun::tensors {

inline bool reads_by_pairs() {
  static const bool pairs =
      __builtin_cpu_is("amd") != 0 && vector_registers() == VectorRegisters::avx2;
  return pairs;
}

/// Lanes of 32 bytes, so that they stay in registers and are read again as they were written.
template <typename A>
struct WideLanes {
  static constexpr std::int64_t kWide = 32 / sizeof(A);
  static constexpr std::int64_t kParts = kFoldLanes / kWide;
  typedef Wrapping<A> Vector __attribute__((vector_size(32)));
};

/// Two runs, `step` elements apart. @param lanes of both
template <typename Op, typename Map, typename A>
[[gnu::always_inline]] inline void fill_lanes_of_two(A* lanes, const A* data, std::int64_t step,
                                                     std::int64_t groups) {
  static_assert(std::is_same_v<Op, Add> || std::is_same_v<Op, Multiply>);
  using Wide = WideLanes<A>;
  using Vector = typename Wide::Vector;
  constexpr std::int64_t kParts = 2 * Wide::kParts;
  Vector own[kParts] = {};
#pragma GCC unroll 8
  for (std::int64_t part = 0; part < kParts; ++part) own[part] += neutral<Op, A>();
  const A* next = data + 2 * step;
  for (std::int64_t group = 0; group < groups; ++group) {
    // In the order of memory.
    __builtin_prefetch(next);
    __builtin_prefetch(next + kFoldLanes);
    next += 2 * kFoldLanes;
#pragma GCC unroll 8
    for (std::int64_t part = 0; part < kParts; ++part) {
      const A* const from = data + part / Wide::kParts * step;
      Vector x;
      std::memcpy(&x, from + part % Wide::kParts * Wide::kWide, sizeof x);
      Map::on(x);
      if constexpr (std::is_same_v<Op, Add>) {
        own[part] += x;
      } else {
        own[part] *= x;
      }
    }
    data += kFoldLanes;
  }
#pragma GCC unroll 8
  for (std::int64_t part = 0; part < kParts; ++part)
    std::memcpy(lanes + part * Wide::kWide, &own[part], sizeof(Vector));
}

}  // namespace dtrun::tensors
#endif
