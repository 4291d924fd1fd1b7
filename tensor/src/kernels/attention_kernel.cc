#include "kernels/attention_kernel.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/vector_math.h"
#include "multiversion.h"

namespace dtrun::tensors {
namespace {

/// Of one group of columns. The compiler splits it where vectors are shorter.
template <typename A>
struct GroupOfScores {
  typedef A Type __attribute__((vector_size(kTileLanes * sizeof(A))));
};

/// Of every lane: vector_math::exp_of_negative, written for groups, so that the sum is taken in the
/// same pass.
__attribute__((always_inline)) inline void raise_group(GroupOfScores<float>::Type& x) {
  typedef std::int32_t Bits __attribute__((vector_size(kTileLanes * sizeof(float))));
  using Group = GroupOfScores<float>::Type;
  constexpr float kRound = 0x1.8p23f;
  const Group shifted = x * 1.44269504f + kRound;
  const Group whole = shifted - kRound;
  const Group upper = x - whole * 0x1.62e4p-1f;
  const Group rest = upper - whole * 0x1.7f7d1cp-20f;
  Group power = 0x1.6c5f3ep-10f * rest + 0x1.1239dep-7f;
  power = power * rest + 0x1.5554eep-5f;
  power = power * rest + 0x1.55553ap-3f;
  power = power * rest + 0x1.fffff8p-2f;
  power = power * rest + 1.0f;
  power = power * rest + 1.0f;
  const Group scaled = (Group)((Bits)power + ((Bits)shifted << 23));
  x = x < -87.3f ? Group{} : scaled;
}
__attribute__((always_inline)) inline void raise_group(GroupOfScores<double>::Type& x) {
  double lanes[kTileLanes];
  std::memcpy(lanes, &x, sizeof lanes);
  DTRUN_INDEPENDENT_ROUNDS
  for (std::int64_t i = 0; i < kTileLanes; ++i) lanes[i] = vector_math::exp_of_negative(lanes[i]);
  std::memcpy(&x, lanes, sizeof lanes);
}

template <typename Group>
__attribute__((always_inline)) inline auto greatest_in(const Group& group) {
  Group most = group;
  const auto fold = [&most](const Group& other) __attribute__((always_inline)) {
    most = other > most ? other : most;
  };
  fold(__builtin_shufflevector(most, most, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7));
  fold(__builtin_shufflevector(most, most, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11));
  fold(__builtin_shufflevector(most, most, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13));
  fold(__builtin_shufflevector(most, most, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14));
  return most[0];
}

/// Of kTileLanes numbers.
template <typename A>
A total_of_lanes(const A* lanes) {
  A halves[kTileLanes];
  std::copy_n(lanes, kTileLanes, halves);
  for (std::int64_t width = kTileLanes / 2; width > 0; width /= 2) {
    for (std::int64_t i = 0; i < width; ++i) halves[i] += halves[i + width];
  }
  return halves[0];
}

template <typename A>
DTRUN_MULTIVERSION void weigh_rows(const ScoreTile<A>& scores, const SeenKeys<A>& seen) {
  using Group = typename GroupOfScores<A>::Type;
  constexpr A kNothing = -std::numeric_limits<A>::infinity();
  const std::int64_t columns = scores.columns - scores.columns % kTileLanes;
  const std::int64_t result_columns = seen.result_columns - seen.result_columns % kTileLanes;
  for (std::int64_t r = 0; r < scores.rows; ++r) {
    A* const row = scores.data + r * scores.row;
    Group most;
    std::memcpy(&most, row, sizeof most);
    for (std::int64_t i = kTileLanes; i < columns; i += kTileLanes) {
      Group next;
      std::memcpy(&next, row + i, sizeof next);
      most = next > most ? next : most;
    }
    const A before = seen.greatest[r];
    A greatest = std::max(before, greatest_in(most));
    if (greatest == kNothing) {
      if (std::none_of(row, row + columns, [](A score) { return score != score; })) {
        std::fill_n(row, columns, A{0});
        continue;
      }
      greatest = std::numeric_limits<A>::quiet_NaN();
    }
    Group sums = {};
    for (std::int64_t i = 0; i < columns; i += kTileLanes) {
      Group next;
      std::memcpy(&next, row + i, sizeof next);
      next -= greatest;
      raise_group(next);
      std::memcpy(row + i, &next, sizeof next);
      sums += next;
    }
    A* const total = seen.total + r * kTileLanes;
    Group totals;
    std::memcpy(&totals, total, sizeof totals);
    if (greatest == before) {
      totals += sums;
      std::memcpy(total, &totals, sizeof totals);
      continue;
    }
    const A factor = before == kNothing ? A{0} : vector_math::exp_of_negative(before - greatest);
    seen.greatest[r] = greatest;
    totals = totals * factor + sums;
    std::memcpy(total, &totals, sizeof totals);
    A* const result = seen.results + r * seen.result_row;
    DTRUN_INDEPENDENT_ROUNDS
    for (std::int64_t i = 0; i < result_columns; ++i) result[i] *= factor;
  }
}

template <typename A>
DTRUN_MULTIVERSION void weigh_rows_again(const ScoreTile<A>& scores, A* gradients,
                                         const A* logsumexp, const A* dots) {
  using Group = typename GroupOfScores<A>::Type;
  const std::int64_t columns = scores.columns - scores.columns % kTileLanes;
  for (std::int64_t r = 0; r < scores.rows; ++r) {
    A* const row = scores.data + r * scores.row;
    A* const gradient = gradients + r * scores.row;
    const A sum = logsumexp[r], dot = dots[r];
    for (std::int64_t i = 0; i < columns; i += kTileLanes) {
      Group weight, slope;
      std::memcpy(&weight, row + i, sizeof weight);
      std::memcpy(&slope, gradient + i, sizeof slope);
      weight -= sum;
      raise_group(weight);
      slope = weight * (slope - dot);
      std::memcpy(row + i, &weight, sizeof weight);
      std::memcpy(gradient + i, &slope, sizeof slope);
    }
  }
}

template <typename A>
DTRUN_MULTIVERSION void scale_row(A* row, A factor, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) row[i] *= factor;
}

template <typename A>
DTRUN_MULTIVERSION void add_row(A* row, const A* other, std::int64_t count) {
  DTRUN_INDEPENDENT_ROUNDS
  for (std::int64_t i = 0; i < count; ++i) row[i] += other[i];
}

template <typename A>
DTRUN_MULTIVERSION A dot_of(const A* a, const A* b, std::int64_t count) {
  using Group = typename GroupOfScores<A>::Type;
  Group sums = {};
  std::int64_t i = 0;
  for (; i + kTileLanes <= count; i += kTileLanes) {
    Group left, right;
    std::memcpy(&left, a + i, sizeof left);
    std::memcpy(&right, b + i, sizeof right);
    sums += left * right;
  }
  A lanes[kTileLanes];
  std::memcpy(lanes, &sums, sizeof lanes);
  A total = total_of_lanes(lanes);
  for (; i < count; ++i) total += a[i] * b[i];
  return total;
}

}  // namespace

template <typename A>
void AttentionKernels<A>::weigh(const ScoreTile<A>& scores, const SeenKeys<A>& seen) {
  weigh_rows(scores, seen);
}

template <typename A>
void AttentionKernels<A>::weigh_again(const ScoreTile<A>& scores, A* gradients, const A* logsumexp,
                                      const A* dots) {
  weigh_rows_again(scores, gradients, logsumexp, dots);
}

template <typename A>
A AttentionKernels<A>::total(const A* lanes) {
  return total_of_lanes(lanes);
}

template <typename A>
A AttentionKernels<A>::dot(const A* a, const A* b, std::int64_t count) {
  return dot_of(a, b, count);
}

template <typename A>
void AttentionKernels<A>::scale(A* row, A factor, std::int64_t count) {
  scale_row(row, factor, count);
}

template <typename A>
void AttentionKernels<A>::add(A* row, const A* other, std::int64_t count) {
  add_row(row, other, count);
}

template struct AttentionKernels<float>;
template struct AttentionKernels<double>;

}  // namespace dtrun::tensors
