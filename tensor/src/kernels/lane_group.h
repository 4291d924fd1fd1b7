// LaneGroup: 16 numbers in the vectors that the processor has, for kernels that are compiled for
// vectors of 16, 32 and 64 bytes. g++ 12 makes single numbers of a longer vector where it compares
// or chooses: on AVX2 that took as long as attention's products. Groups are passed by reference:
// how a vector is passed by value depends on the processor that a function is compiled for.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>

#include "kernels/vector_math.h"
#include "multiversion.h"

/// Before the body of a lambda that must be part of its callers.
#define DTRUN_INLINED_LAMBDA __attribute__((always_inline))

namespace dtrun::tensors {

constexpr std::int64_t kGroupLanes = 16;

template <typename A, int kBytes>
struct LaneGroup {
  typedef A Vector __attribute__((vector_size(kBytes)));
  static constexpr int kVectors = static_cast<int>(kGroupLanes * sizeof(A)) / kBytes;
  static constexpr int kCount = static_cast<int>(kGroupLanes) / kVectors;  ///< of one vector
  Vector part[kVectors];
};

template <typename A, int kBytes>
DTRUN_INLINED void load(LaneGroup<A, kBytes>& group, const A* from) {
  using Group = LaneGroup<A, kBytes>;
#pragma GCC unroll 8
  for (int v = 0; v < Group::kVectors; ++v)
    std::memcpy(&group.part[v], from + v * Group::kCount, kBytes);
}
template <typename A, int kBytes>
DTRUN_INLINED void store(A* to, const LaneGroup<A, kBytes>& group) {
  using Group = LaneGroup<A, kBytes>;
#pragma GCC unroll 8
  for (int v = 0; v < Group::kVectors; ++v)
    std::memcpy(to + v * Group::kCount, &group.part[v], kBytes);
}
/// change(vector, its number)
template <typename A, int kBytes, typename Change>
DTRUN_INLINED void for_each_part(LaneGroup<A, kBytes>& group, Change change) {
#pragma GCC unroll 8
  for (int v = 0; v < LaneGroup<A, kBytes>::kVectors; ++v) change(group.part[v], v);
}

/// e to the power of every lane: vector_math::exp_of_negative, written for vectors, so that the
/// sum is taken in the same pass.
template <int kBytes>
DTRUN_INLINED void raise(LaneGroup<float, kBytes>& group) {
  typedef std::uint32_t Bits __attribute__((vector_size(kBytes)));
  using Vector = typename LaneGroup<float, kBytes>::Vector;
  constexpr float kRounder = 0x1.8p23f;
#pragma GCC unroll 8
  for (int v = 0; v < LaneGroup<float, kBytes>::kVectors; ++v) {
    const Vector x = group.part[v];
    const Vector shifted = x * 1.44269504f + kRounder;
    const Vector whole = shifted - kRounder;
    const Vector upper = x - whole * 0x1.62e4p-1f;
    const Vector rest = upper - whole * 0x1.7f7d1cp-20f;
    Vector power = 0x1.6c5f3ep-10f * rest + 0x1.1239dep-7f;
    power = power * rest + 0x1.5554eep-5f;
    power = power * rest + 0x1.55553ap-3f;
    power = power * rest + 0x1.fffff8p-2f;
    power = power * rest + 1.0f;
    power = power * rest + 1.0f;
    const Vector scaled = (Vector)((Bits)power + ((Bits)shifted << 23));
    // A nan keeps its bits: the shift would make a number of some.
    const Vector kept = x == x ? scaled : x;
    group.part[v] = x < -87.3f ? Vector{} : kept;
  }
}
template <int kBytes>
DTRUN_INLINED void raise(LaneGroup<double, kBytes>& group) {
  double lanes[kGroupLanes];
  store(lanes, group);
  DTRUN_INDEPENDENT_ROUNDS
  for (std::int64_t i = 0; i < kGroupLanes; ++i) lanes[i] = vector_math::exp_of_negative(lanes[i]);
  load(group, lanes);
}

// What joins two lanes, of vectors and of numbers. kNeutral: what changes none.
struct AddLanes {
  template <typename A>
  static constexpr A kNeutral = 0;
  template <typename V>
  DTRUN_INLINED static void on(V& lanes, const V& other) {
    lanes += other;
  }
};
/// Where one of two is nan, that of `lanes`.
struct ChooseGreater {
  template <typename A>
  static constexpr A kNeutral = -std::numeric_limits<A>::infinity();
  template <typename V>
  DTRUN_INLINED static void on(V& lanes, const V& other) {
    lanes = other > lanes ? other : lanes;
  }
};

template <typename Join, typename A, int kBytes>
DTRUN_INLINED void join(LaneGroup<A, kBytes>& group, const LaneGroup<A, kBytes>& other) {
  for_each_part(group,
                [&](auto& part, int v) DTRUN_INLINED_LAMBDA { Join::on(part, other.part[v]); });
}

/// The lower half of a vector with the upper one, and so on.
template <typename Join, int kCount, typename A, typename Vector>
DTRUN_INLINED void join_halves(A& result, const Vector& vector) {
  if constexpr (kCount == 16) {
    auto half = __builtin_shufflevector(vector, vector, 0, 1, 2, 3, 4, 5, 6, 7);
    Join::on(half, __builtin_shufflevector(vector, vector, 8, 9, 10, 11, 12, 13, 14, 15));
    join_halves<Join, 8>(result, half);
  } else if constexpr (kCount == 8) {
    auto half = __builtin_shufflevector(vector, vector, 0, 1, 2, 3);
    Join::on(half, __builtin_shufflevector(vector, vector, 4, 5, 6, 7));
    join_halves<Join, 4>(result, half);
  } else if constexpr (kCount == 4) {
    Vector half = vector;
    Join::on(half, __builtin_shufflevector(vector, vector, 2, 3, 2, 3));
    join_halves<Join, 2>(result, half);
  } else {
    static_assert(kCount == 2);
    result = vector[0];
    Join::on(result, A{vector[1]});
  }
}

/// Lane i with lane i + 8, then i with i + 4, and so on.
template <typename Join, typename A, int kBytes>
DTRUN_INLINED A joined(const LaneGroup<A, kBytes>& group) {
  using Group = LaneGroup<A, kBytes>;
  Group lanes = group;
#pragma GCC unroll 4
  for (int half = Group::kVectors / 2; half > 0; half /= 2) {
#pragma GCC unroll 4
    for (int v = 0; v < half; ++v) Join::on(lanes.part[v], lanes.part[v + half]);
  }
  A result;
  join_halves<Join, Group::kCount>(result, lanes.part[0]);
  return result;
}

}  // namespace dtrun::tensors
