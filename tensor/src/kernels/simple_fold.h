// Folds whose state is a number: how their blocks are folded, joined and finished. A translation
// unit instantiates those of its family (fold_families.h).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "arithmetic.h"
#include "element.h"
#include "kernels/fold_kernel.h"
#include "kernels/fold_lanes.h"
#include "multiversion.h"

namespace dtrun::tensors {

/// FoldKernel::join. @param kOne the second state into the first
template <typename State, void (*kOne)(State&, const State&)>
void join_tree(State* states, std::int64_t blocks, std::int64_t width) {
  if (blocks <= 1) return;
  const std::int64_t left = blocks / 2;
  State* const right = states + left * width;
  join_tree<State, kOne>(states, left, width);
  join_tree<State, kOne>(right, blocks - left, width);
  for (std::int64_t w = 0; w < width; ++w) kOne(states[w], right[w]);
}
template <typename State, void (*kOne)(State&, const State&)>
void join_states(void* states, std::int64_t blocks, std::int64_t width) {
  join_tree<State, kOne>(static_cast<State*>(states), blocks, width);
}
/// The states of neighbours, the left one first. A state is written after it was read.
template <typename Op, typename A>
DTRUN_MULTIVERSION void join_pairs(A* states, std::int64_t pairs) {
  DTRUN_INDEPENDENT_ROUNDS
  for (std::int64_t i = 0; i < pairs; ++i) states[i] = Op::apply(states[2 * i], states[2 * i + 1]);
}
template <typename Op, typename A>
void apply_to(A& left, const A& right) {
  left = Op::apply(left, right);
}
/// join_tree of numbers. A tree of 2^k times n blocks has the trees of n blocks each at its leaves,
/// and above them joins neighbours. Extremes are the same in every order.
template <typename Op, typename A>
void join_numbers(void* states, std::int64_t blocks, std::int64_t width) {
  A* const of = static_cast<A*>(states);
  if (width > 1 || blocks < 4) return join_tree<A, &apply_to<Op, A>>(of, blocks, width);
  if constexpr (kIsExtreme<Op>) {
    *of = fold_elements<Op>(of, blocks, Itself{});
  } else {
    std::int64_t leaf = blocks;
    while (leaf % 2 == 0) leaf /= 2;
    std::int64_t leaves = blocks / leaf;
    for (std::int64_t i = 0; leaf > 1 && i < leaves; ++i) {
      join_tree<A, &apply_to<Op, A>>(of + i * leaf, leaf, 1);
      of[i] = of[i * leaf];
    }
    for (; leaves > 1; leaves /= 2) join_pairs<Op>(of, leaves / 2);
  }
}
// A kernel's finish of what one state takes.
template <typename Result, typename State, Result (*kOne)(const State*, const FoldNumbers&)>
void finish_each(void* results, const void* states, std::int64_t width,
                 const FoldNumbers& numbers) {
  for (std::int64_t w = 0; w < width; ++w) {
    const State* const state = states == nullptr ? nullptr : static_cast<const State*>(states) + w;
    static_cast<Result*>(results)[w] = kOne(state, numbers);
  }
}

template <typename Op, typename T, typename Map>
void simple_block(void* state, const void* data, std::int64_t count, std::int64_t,
                  const FoldNumbers& numbers) {
  using A = ComputeType<T>;
  const T* const elements = static_cast<const T*>(data);
  if constexpr (std::is_constructible_v<Map, const FoldNumbers&>) {
    *static_cast<A*>(state) = fold_elements<Op>(elements, count, Map(numbers));
  } else {
    *static_cast<A*>(state) = fold_elements<Op>(elements, count, Map{});
  }
}

/// kRows rows that go to one lane, `step` bytes apart.
template <typename Op, int kRows, typename A, typename T>
DTRUN_MULTIVERSION void add_rows(A* lane, const char* data, std::int64_t step, std::int64_t width) {
  const T* row[kRows];
  for (int k = 0; k < kRows; ++k) row[k] = reinterpret_cast<const T*>(data + k * step);
  DTRUN_INDEPENDENT_ROUNDS
  for (std::int64_t w = 0; w < width; ++w) {
    A folded = lane[w];
#pragma GCC unroll 8
    for (int k = 0; k < kRows; ++k) folded = Op::apply(folded, Element<T>::load(row[k][w]));
    lane[w] = folded;
  }
}

/// The same sums of bf16, by words of two columns as add_lanes_of_four() (fold_lanes.h): of sixteen
/// columns the lanes of the even ones lie before those of the odd ones.
template <int kRows>
DTRUN_MULTIVERSION void add_rows_of_words(float* lane, const char* data, std::int64_t step,
                                          std::int64_t width) {
  typedef float Lanes __attribute__((vector_size(32)));
  typedef std::uint32_t Words __attribute__((vector_size(32)));
  std::int64_t w = 0;
  for (; w + kFoldLanes <= width; w += kFoldLanes) {
    Lanes even, odd;
    std::memcpy(&even, lane + w, sizeof even);
    std::memcpy(&odd, lane + w + kFoldLanes / 2, sizeof odd);
#pragma GCC unroll 8
    for (int k = 0; k < kRows; ++k) {
      Words words;
      std::memcpy(&words, data + k * step + w * 2, sizeof words);
      even += (Lanes)(words << 16);
      odd += (Lanes)(words & 0xffff0000u);
    }
    std::memcpy(lane + w, &even, sizeof even);
    std::memcpy(lane + w + kFoldLanes / 2, &odd, sizeof odd);
  }
  for (; w < width; ++w) {
    for (int k = 0; k < kRows; ++k)
      lane[w] += to_float(reinterpret_cast<const BFloat16*>(data + k * step)[w]);
  }
}
/// The lanes of add_rows_of_words() in the columns' order.
inline void put_columns(float* columns, const float* lane, std::int64_t width) {
  constexpr std::int64_t kHalf = kFoldLanes / 2;
  std::int64_t w = 0;
  for (; w + kFoldLanes <= width; w += kFoldLanes) {
    for (std::int64_t i = 0; i < kHalf; ++i) {
      columns[w + 2 * i] = lane[w + i];
      columns[w + 2 * i + 1] = lane[w + kHalf + i];
    }
  }
  std::copy_n(lane + w, width - w, columns + w);
}

template <typename Op, typename T>
constexpr bool kByWords = std::is_same_v<Op, Add>&& std::is_same_v<T, BFloat16>;

template <typename Op, int kRows, typename A, typename T>
void fold_rows_into(A* lane, const char* data, std::int64_t step, std::int64_t width) {
  if constexpr (kByWords<Op, T>) {
    add_rows_of_words<kRows>(lane, data, step, width);
  } else {
    add_rows<Op, kRows, A, T>(lane, data, step, width);
  }
}

template <typename Op, typename T>
void simple_panel(void* states, const char* data, std::int64_t row_step, std::int64_t count,
                  std::int64_t width, std::int64_t) {
  using A = ComputeType<T>;
  constexpr int kRows = 8;
  A lanes[kFoldLanes * kPanelBytes / sizeof(A)];
  // Lanes that no row reaches would stay neutral.
  std::int64_t used = kFoldLanes;
  while (used / 2 >= count) used /= 2;
  std::fill_n(lanes, used * width, neutral<Op, A>());
  const std::int64_t step = kFoldLanes * row_step;
  std::int64_t first = 0;
  // Where rows follow each other, those of all lanes are one. Of words, in a row's own order only.
  if (row_step == width * static_cast<std::int64_t>(sizeof(T)) &&
      (!kByWords<Op, T> || width % kFoldLanes == 0)) {
    // The hardware does not follow runs of less than a KiB: so it is asked for what is next, where
    // that is not too much for the first cache.
    constexpr std::int64_t kMostAhead = 8192;
    const std::int64_t bytes = kRows * step;
    for (; first + kRows * kFoldLanes <= count; first += kRows * kFoldLanes) {
      const char* const own = data + first * row_step;
      for (std::int64_t i = 0; bytes <= kMostAhead && i < bytes; i += 64)
        __builtin_prefetch(own + bytes + i);
      fold_rows_into<Op, kRows, A, T>(lanes, own, step, kFoldLanes * width);
    }
  }
  for (; first < count; first += kRows * kFoldLanes) {
    for (std::int64_t lane = 0; lane < std::min(kFoldLanes, count - first); ++lane) {
      A* const own = lanes + lane * width;
      std::int64_t i = first + lane;
      if (i + (kRows - 1) * kFoldLanes < count) {
        fold_rows_into<Op, kRows, A, T>(own, data + i * row_step, step, width);
        continue;
      }
      if (i + (kRows / 2 - 1) * kFoldLanes < count) {
        fold_rows_into<Op, kRows / 2, A, T>(own, data + i * row_step, step, width);
        i += kRows / 2 * kFoldLanes;
      }
      for (; i < count; i += kFoldLanes) {
        fold_rows_into<Op, 1, A, T>(own, data + i * row_step, step, width);
      }
    }
  }
  for (std::int64_t half = used / 2; half > 0; half /= 2) {
    for (std::int64_t i = 0; i < half * width; ++i) {
      lanes[i] = Op::apply(lanes[i], lanes[i + half * width]);
    }
  }
  if constexpr (kByWords<Op, T>) {
    put_columns(static_cast<A*>(states), lanes, width);
  } else {
    std::copy_n(lanes, width, static_cast<A*>(states));
  }
}

template <typename Op, typename T, typename Map>
void simple_four(void* states, const char* data, std::int64_t step, std::int64_t count,
                 std::int64_t fours) {
  fold_fours<Op>(static_cast<ComputeType<T>*>(states), reinterpret_cast<const T*>(data),
                 step / static_cast<std::int64_t>(sizeof(T)), count, fours, Map{});
}

// libm's, never a vector version: a result's bits do not depend on how many there are.
template <typename A>
__attribute__((noinline)) A pow_of_one(A value, A power) {
  return std::pow(value, power);
}

enum class Finish { none, mean, root, power };

template <typename Op, typename A, Finish kFinish>
void simple_finish(void* results, const void* states, std::int64_t width,
                   const FoldNumbers& numbers) {
  for (std::int64_t w = 0; w < width; ++w) {
    A value = states != nullptr ? static_cast<const A*>(states)[w] : neutral<Op, A>();
    if constexpr (kFinish == Finish::mean) value /= static_cast<A>(numbers.count);
    if constexpr (kFinish == Finish::root) value = std::sqrt(value);
    if constexpr (kFinish == Finish::power)
      value = pow_of_one(value, static_cast<A>(1 / numbers.number));
    static_cast<A*>(results)[w] = value;
  }
}

template <typename T>
constexpr DType kFoldDType = std::is_same_v<T, double>     ? DType::f64
                             : std::is_same_v<T, float>    ? DType::f32
                             : std::is_same_v<T, BFloat16> ? DType::bf16
                                                           : DType::i64;

/// Whether a lane waits for the operation before rather than for the function of the element: then
/// four runs at once take the time of one.
template <typename Map>
constexpr bool kMapIsFasterThanFold =
    std::is_same_v<Map, Itself> || std::is_same_v<Map, Magnitude> || std::is_same_v<Map, Squared>;

/// T: how the elements lie in memory.
template <typename Op, typename T, typename Map = Itself, Finish kFinish = Finish::none>
FoldKernel simple_fold() {
  using A = ComputeType<T>;
  FoldKernel kernel{kFoldDType<T>,
                    kFoldDType<A>,
                    sizeof(A),
                    &simple_block<Op, T, Map>,
                    &join_numbers<Op, A>,
                    &simple_finish<Op, A, kFinish>};
  if constexpr (std::is_same_v<Map, Itself>) kernel.panel = &simple_panel<Op, T>;
  constexpr bool kFoldHasLatency =
      std::is_same_v<Op, Add> || (std::is_same_v<Op, Multiply> && std::is_floating_point_v<A>);
  if constexpr (kFoldHasLatency && kMapIsFasterThanFold<Map>)
    kernel.four = &simple_four<Op, T, Map>;
  kernel.blocks_share = kIsExtreme<Op>;
  return kernel;
}

}  // namespace dtrun::tensors
