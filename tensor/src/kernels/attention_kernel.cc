#include "kernels/attention_kernel.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/lane_group.h"
#include "kernels/vector_math.h"
#include "kernels/vector_registers.h"
#include "multiversion.h"

namespace dtrun::tensors {
namespace {

static_assert(kTileLanes == kGroupLanes);

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

/// The greatest of a row's scores and of what was seen before. A nan is left out, and makes the row
/// nan by its own power; where nothing else is to be seen, the result is nan.
template <typename A, int kBytes>
DTRUN_INLINED A greatest_of_row(const A* row, std::int64_t columns, A before) {
  constexpr A kNothing = -std::numeric_limits<A>::infinity();
  LaneGroup<A, kBytes> most;
  load(most, row);
  for (std::int64_t i = kTileLanes; i < columns; i += kTileLanes) {
    LaneGroup<A, kBytes> next;
    load(next, row + i);
    join<ChooseGreater>(most, next);
  }
  const A greatest = std::max(before, joined<ChooseGreater>(most));
  if (greatest != kNothing ||
      std::none_of(row, row + columns, [](A score) { return score != score; })) {
    return greatest;
  }
  return std::numeric_limits<A>::quiet_NaN();
}

/// Scores become powers. @return in sums, what they add up to
template <typename A, int kBytes>
DTRUN_INLINED void raise_row(LaneGroup<A, kBytes>& sums, A* row, std::int64_t columns, A greatest) {
  for (std::int64_t i = 0; i < columns; i += kTileLanes) {
    LaneGroup<A, kBytes> next;
    load(next, row + i);
    for_each_part(next, [&](auto& part, int) DTRUN_INLINED_LAMBDA { part -= greatest; });
    raise(next);
    store(row + i, next);
    for_each_part(sums, [&](auto& part, int v) DTRUN_INLINED_LAMBDA { part += next.part[v]; });
  }
}

template <typename A, int kBytes>
DTRUN_INLINED void weigh_rows(const ScoreTile<A>& scores, const SeenKeys<A>& seen) {
  constexpr A kNothing = -std::numeric_limits<A>::infinity();
  const std::int64_t columns = scores.columns - scores.columns % kTileLanes;
  const std::int64_t result_columns = seen.result_columns - seen.result_columns % kTileLanes;
  for (std::int64_t r = 0; r < scores.rows; ++r) {
    A* const row = scores.data + r * scores.row;
    const A before = seen.greatest[r];
    const A greatest = greatest_of_row<A, kBytes>(row, columns, before);
    if (greatest == kNothing) {
      std::fill_n(row, columns, A{0});
      continue;
    }
    LaneGroup<A, kBytes> sums = {}, totals;
    raise_row(sums, row, columns, greatest);
    A* const total = seen.total + r * kTileLanes;
    load(totals, total);
    const bool is_as_before = greatest == before;
    const A factor = is_as_before         ? A{1}
                     : before == kNothing ? A{0}
                                          : vector_math::exp_of_negative(before - greatest);
    for_each_part(totals, [&](auto& part, int v)
                              DTRUN_INLINED_LAMBDA { part = part * factor + sums.part[v]; });
    store(total, totals);
    if (is_as_before) continue;
    seen.greatest[r] = greatest;
    A* const result = seen.results + r * seen.result_row;
    DTRUN_INDEPENDENT_ROUNDS
    for (std::int64_t i = 0; i < result_columns; ++i) result[i] *= factor;
  }
}

template <typename A, int kBytes>
DTRUN_INLINED void weigh_rows_again(const ScoreTile<A>& scores, A* gradients, const A* logsumexp,
                                    const A* dots) {
  const std::int64_t columns = scores.columns - scores.columns % kTileLanes;
  for (std::int64_t r = 0; r < scores.rows; ++r) {
    A* const row = scores.data + r * scores.row;
    A* const gradient = gradients + r * scores.row;
    const A sum = logsumexp[r], dot = dots[r];
    for (std::int64_t i = 0; i < columns; i += kTileLanes) {
      LaneGroup<A, kBytes> weight, slope;
      load(weight, row + i);
      load(slope, gradient + i);
      for_each_part(weight, [&](auto& part, int) DTRUN_INLINED_LAMBDA { part -= sum; });
      raise(weight);
      for_each_part(slope, [&](auto& part, int v)
                               DTRUN_INLINED_LAMBDA { part = weight.part[v] * (part - dot); });
      store(row + i, weight);
      store(gradient + i, slope);
    }
  }
}

template <typename A, int kBytes>
DTRUN_INLINED A dot_of(const A* a, const A* b, std::int64_t count) {
  LaneGroup<A, kBytes> sums = {};
  std::int64_t i = 0;
  for (; i + kTileLanes <= count; i += kTileLanes) {
    LaneGroup<A, kBytes> left, right;
    load(left, a + i);
    load(right, b + i);
    for_each_part(sums, [&](auto& part, int v)
                            DTRUN_INLINED_LAMBDA { part += left.part[v] * right.part[v]; });
  }
  A total = joined<AddLanes>(sums);
  for (; i < count; ++i) total += a[i] * b[i];
  return total;
}

/// What differs by the vectors that the processor has.
template <typename A>
struct KernelsForRegisters {
  void (*weigh)(const ScoreTile<A>&, const SeenKeys<A>&);
  void (*weigh_again)(const ScoreTile<A>&, A*, const A*, const A*);
  A (*dot)(const A*, const A*, std::int64_t);
};

#define DTRUN_KERNELS(name, bytes, attribute)                                          \
  template <typename A>                                                                \
  struct name {                                                                        \
    attribute static void weigh(const ScoreTile<A>& scores, const SeenKeys<A>& seen) { \
      weigh_rows<A, bytes>(scores, seen);                                              \
    }                                                                                  \
    attribute static void weigh_again(const ScoreTile<A>& scores, A* gradients,        \
                                      const A* logsumexp, const A* dots) {             \
      weigh_rows_again<A, bytes>(scores, gradients, logsumexp, dots);                  \
    }                                                                                  \
    attribute static A dot(const A* a, const A* b, std::int64_t count) {               \
      return dot_of<A, bytes>(a, b, count);                                            \
    }                                                                                  \
    static constexpr KernelsForRegisters<A> kAll = {&weigh, &weigh_again, &dot};       \
  };
DTRUN_FOR_REGISTERS(DTRUN_KERNELS)
#undef DTRUN_KERNELS

template <typename A>
const KernelsForRegisters<A>& widest_kernels() {
  return DTRUN_WIDEST_KERNELS(A);
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

}  // namespace

template <typename A>
void AttentionKernels<A>::weigh(const ScoreTile<A>& scores, const SeenKeys<A>& seen) {
  widest_kernels<A>().weigh(scores, seen);
}

template <typename A>
void AttentionKernels<A>::weigh_again(const ScoreTile<A>& scores, A* gradients, const A* logsumexp,
                                      const A* dots) {
  widest_kernels<A>().weigh_again(scores, gradients, logsumexp, dots);
}

template <typename A>
A AttentionKernels<A>::total(const A* lanes) {
  return total_of_lanes(lanes);
}

template <typename A>
A AttentionKernels<A>::dot(const A* a, const A* b, std::int64_t count) {
  return widest_kernels<A>().dot(a, b, count);
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
