// The extreme of a dense run of floats: lanes that are compared by one instruction, whose choice
// holds where there is neither a nan nor a 0 to choose.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "arithmetic.h"
#include "kernels/extreme.h"
#include "kernels/fold_kernel.h"
#include "kernels/vector_registers.h"
#include "multiversion.h"

namespace dtrun::tensors {

template <typename Op>
constexpr std::int64_t kLanesOf = kFoldLanes;
/// Their order does not matter: as many as hide the time of one comparison.
template <typename Order>
constexpr std::int64_t kLanesOf<Extreme<Order>> = 64;

/// What one instruction chooses, of 0 and -0 or beside a nan any.
template <typename Order, typename A>
A choose(A a, A b) {
  return std::is_same_v<Order, Max> ? (a > b ? a : b) : (a < b ? a : b);
}

/// Of each lane and the one that many behind it.
template <typename Order, std::int64_t kHalf, typename A>
[[gnu::always_inline]] inline void choose_half(A* lanes) {
  for (std::int64_t lane = 0; lane < kHalf; ++lane)
    lanes[lane] = choose<Order>(lanes[lane], lanes[kHalf + lane]);
}

/// @return whether there is a nan; then the choice says nothing
template <typename Order, typename A>
DTRUN_MULTIVERSION bool choose_in_lanes(A& choice, const A* data, std::int64_t groups) {
  using Bits = std::conditional_t<sizeof(A) == 8, std::int64_t, std::int32_t>;
  constexpr std::int64_t kCount = kLanesOf<Extreme<Order>>;
  constexpr std::int64_t kHalf = kCount / 2;
  A local[kCount];
  Bits unordered[kHalf] = {};
  for (std::int64_t lane = 0; lane < kCount; ++lane) local[lane] = data[lane];
  for (std::int64_t group = 0; group < groups; ++group) {
    // The hardware does not look beyond a page; two pages on took 2 % less than one.
    for (std::int64_t lane = 0; lane < kCount; lane += 16) __builtin_prefetch(data + 2048 + lane);
    for (std::int64_t lane = 0; lane < kHalf; ++lane) {
      const A x = data[lane], y = data[kHalf + lane];
      local[lane] = choose<Order>(local[lane], x);
      local[kHalf + lane] = choose<Order>(local[kHalf + lane], y);
      unordered[lane] |= __builtin_isunordered(x, y) ? -1 : 0;
    }
    data += kCount;
  }
  choose_half<Order, kHalf>(local);
  choose_half<Order, kHalf / 2>(local);
  for (std::int64_t lane = 0; lane < kHalf / 2; ++lane)
    unordered[lane] |= unordered[kHalf / 2 + lane];
  Bits any = 0;
  for (std::int64_t lane = 0; lane < kHalf / 2; ++lane) any |= unordered[lane];
  choose_half<Order, kHalf / 4>(local);
  choose_half<Order, kHalf / 8>(local);
  choice = choose<Order>(choose<Order>(local[0], local[1]), choose<Order>(local[2], local[3]));
  return any != 0;
}

#if defined(__x86_64__)
/// Which of the pairs have a nan.
inline DTRUN_WITH_AVX512 unsigned unordered(__m512 x, __m512 y) {
  return _mm512_cmp_ps_mask(x, y, _CMP_UNORD_Q);
}
inline DTRUN_WITH_AVX512 unsigned unordered(__m512d x, __m512d y) {
  return _mm512_cmp_pd_mask(x, y, _CMP_UNORD_Q);
}

template <typename Order, typename V>
[[gnu::always_inline]] inline void choose_parts(V& chosen, const V& x) {
  if constexpr (std::is_same_v<Order, Max>) {
    chosen = chosen > x ? chosen : x;
  } else {
    chosen = chosen < x ? chosen : x;
  }
}
/// The same in the order of memory, each line loaded once: see fold_in_order.h.
template <typename Order, typename A>
DTRUN_WITH_AVX512 bool choose_in_order(A& choice, const A* data, std::int64_t groups) {
  typedef A Vector __attribute__((vector_size(64)));
  constexpr std::int64_t kWide = 64 / sizeof(A), kParts = kLanesOf<Extreme<Order>> / kWide;
  Vector own[kParts];
#pragma GCC unroll 8
  for (std::int64_t part = 0; part < kParts; ++part)
    std::memcpy(&own[part], data + part * kWide, sizeof(Vector));
  unsigned any = 0;
  for (std::int64_t group = 0; group < groups; ++group) {
#pragma GCC unroll 8
    for (std::int64_t part = 0; part < kParts; part += 2) {
      Vector x, y;
      std::memcpy(&x, data + part * kWide, sizeof x);
      std::memcpy(&y, data + (part + 1) * kWide, sizeof y);
      choose_parts<Order>(own[part], x);
      choose_parts<Order>(own[part + 1], y);
      any |= unordered(x, y);
    }
    data += kParts * kWide;
  }
#pragma GCC unroll 4
  for (std::int64_t half = kParts / 2; half > 0; half /= 2) {
#pragma GCC unroll 8
    for (std::int64_t part = 0; part < half; ++part)
      choose_parts<Order>(own[part], own[part + half]);
  }
  A lanes[kWide];
  std::memcpy(lanes, &own[0], sizeof lanes);
  if constexpr (kWide == 16) choose_half<Order, 8>(lanes);
  choose_half<Order, 4>(lanes);
  choose_half<Order, 2>(lanes);
  choose_half<Order, 1>(lanes);
  choice = lanes[0];
  return any != 0;
}
#endif

template <typename Order, typename A>
bool choose_all(A& choice, const A* data, std::int64_t groups) {
#if defined(__x86_64__)
  if (is_amd_with_avx512()) return choose_in_order<Order>(choice, data, groups);
#endif
  return choose_in_lanes<Order>(choice, data, groups);
}

}  // namespace dtrun::tensors
