// How the lanes of four runs become a state each: the first half of them is combined with the
// second, until one is left.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "arithmetic.h"
#include "kernels/fold_kernel.h"
#include "kernels/vector_registers.h"

namespace dtrun::tensors {

/// Of four runs, each as combine_lanes combines them. Inline in the loop before it: then the lanes
/// are in registers still. Sums of 64 MiB by two threads took 1.19 ms so, and 1.28 before.
template <typename Op, typename A>
[[gnu::always_inline]] inline void combine_lanes_of_four(A* states, const A* lanes) {
  static_assert(kFoldLanes == 16 && kFoldsAtOnce == 4);
  A eight[32], four[16];
  for (std::int64_t run = 0; run < 4; ++run) {
    for (std::int64_t i = 0; i < 8; ++i)
      eight[8 * run + i] = Op::apply(lanes[16 * run + i], lanes[16 * run + 8 + i]);
  }
  // From here on the runs lie side by side.
  for (std::int64_t run = 0; run < 4; ++run) {
    for (std::int64_t i = 0; i < 4; ++i)
      four[4 * i + run] = Op::apply(eight[8 * run + i], eight[8 * run + 4 + i]);
  }
  for (std::int64_t run = 0; run < 4; ++run) {
    states[run] =
        Op::apply(Op::apply(four[run], four[8 + run]), Op::apply(four[4 + run], four[12 + run]));
  }
}

#if defined(__x86_64__)
/// Add or Multiply of vectors.
template <typename Op, typename V>
[[gnu::always_inline]] inline void join_vectors(V& left, const V& right) {
  static_assert(std::is_same_v<Op, Add> || std::is_same_v<Op, Multiply>);
  if constexpr (std::is_same_v<Op, Add>) {
    left += right;
  } else {
    left *= right;
  }
}

/// True only if each run's product of its eight numbers rounds to 0: all magnitudes are below
/// 2^-38, so four of them give at most 2^-152, less than half of 2^-149, the least float.
inline DTRUN_WITH_AVX512 bool products_vanish(__m512 a, __m512 b) {
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff), bound = _mm512_set1_epi32(0x2c800000);
  const __mmask16 in_a = _mm512_cmplt_epi32_mask((__m512i)a & magnitude, bound);
  const __mmask16 in_b = _mm512_cmplt_epi32_mask((__m512i)b & magnitude, bound);
  return (in_a & in_b) == 0xffff;
}
/// 1 with each number's sign.
inline DTRUN_WITH_AVX512 __m512 signs_of(__m512 x) {
  const __m512i sign = _mm512_set1_epi32(INT32_MIN);
  return (__m512)(((__m512i)x & sign) | (__m512i)_mm512_set1_ps(1));
}

/// combine_lanes_of_four() of lanes that are a register each.
template <typename Op, typename A>
[[gnu::always_inline]] inline DTRUN_WITH_AVX512 void combine_wide_lanes(A* states, const A* lanes) {
  typedef Wrapping<A> Sixteen __attribute__((vector_size(64)));
  static_assert(sizeof(Sixteen) == kFoldLanes * sizeof(A));
  Sixteen of[kFoldsAtOnce];
  std::memcpy(of, lanes, sizeof of);
  // Two runs lie side by side from here on.
  Sixteen eight[2];
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    const Sixteen a = of[2 * i], b = of[2 * i + 1];
    eight[i] =
        __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23);
    join_vectors<Op>(eight[i], __builtin_shufflevector(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25,
                                                       26, 27, 28, 29, 30, 31));
  }
  // A product that is subnormal takes a Zen 4 some 30 cycles longer. Of those that vanish only the
  // signs are multiplied.
  bool vanish = false;
  if constexpr (std::is_same_v<Op, Multiply>) {
    vanish = products_vanish(eight[0], eight[1]);
    if (__builtin_expect(vanish, 0)) {
      eight[0] = signs_of(eight[0]);
      eight[1] = signs_of(eight[1]);
    }
  }
  const Sixteen a = eight[0], b = eight[1];
  Sixteen all =
      __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27);
  join_vectors<Op>(all, __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23,
                                                28, 29, 30, 31));
  join_vectors<Op>(all, __builtin_shufflevector(all, all, 2, 3, 2, 3, 6, 7, 6, 7, 10, 11, 10, 11,
                                                14, 15, 14, 15));
  join_vectors<Op>(
      all, __builtin_shufflevector(all, all, 1, 1, 1, 1, 5, 5, 5, 5, 9, 9, 9, 9, 13, 13, 13, 13));
  if (vanish) all *= A{0};
  for (int run = 0; run < 4; ++run) states[run] = all[4 * run];
}
#endif

}  // namespace dtrun::tensors
