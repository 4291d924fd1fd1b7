// The folds of fold_kernel.h as a CUDA kernel takes them: what a lane of a block begins with and
// becomes, and what becomes of the states of blocks. For .cu files only.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "arithmetic.h"
#include "kernels/extreme.h"
#include "kernels/fold_kernel.h"

namespace dtrun::tensors::cuda {

enum class FoldJoin : std::uint8_t { add, multiply, greatest, least };
enum class FoldMap : std::uint8_t { itself, magnitude, square, not_zero };
enum class FoldEnd : std::uint8_t { none, mean, root, truth };

template <typename A>
DTRUN_BOTH A join_numbers(FoldJoin join, A a, A b) {
  switch (join) {
    case FoldJoin::add:
      return Add::apply(a, b);
    case FoldJoin::multiply:
      return Multiply::apply(a, b);
    case FoldJoin::greatest:
      return Greatest::apply(a, b);
    case FoldJoin::least:
      break;
  }
  return Least::apply(a, b);
}

template <typename A>
DTRUN_BOTH A neutral_number(FoldJoin join) {
  switch (join) {
    case FoldJoin::add:
      return neutral<Add, A>();
    case FoldJoin::multiply:
      return neutral<Multiply, A>();
    case FoldJoin::greatest:
      return neutral<Greatest, A>();
    case FoldJoin::least:
      break;
  }
  return neutral<Least, A>();
}

// A kind has: Lane, what a lane holds; State, what a block gives; rounds over the elements of a
// block, each with start(), and lane = join(lane, element), lanes joined by join_lanes(). After a
// round but the last, center() of its lane is what the next one is given. finish() gives a number.

/// Folds whose state is a number. Which one is told at run time, for all threads alike: far fewer
/// kernels to compile.
template <typename A>
struct NumberFold {
  using Lane = A;
  using State = A;
  static constexpr int kRounds = 1;
  FoldJoin how;
  FoldMap map;
  FoldEnd end;
  FoldNumbers numbers;

  DTRUN_BOTH A mapped(A x) const {
    if (map == FoldMap::itself) return x;
    if (map == FoldMap::not_zero) return x != A{0} ? A{1} : A{0};
    if constexpr (std::is_floating_point_v<A>) {
      if (map == FoldMap::square) return x * x;
      return std::fabs(x);
    }
    return x;
  }
  DTRUN_BOTH Lane start(int) const { return neutral_number<A>(how); }
  DTRUN_BOTH Lane add(int, const Lane& lane, A x, const Lane&, std::int64_t) const {
    return join_numbers(how, lane, mapped(x));
  }
  DTRUN_BOTH Lane join_lanes(int, const Lane& a, const Lane& b) const {
    return join_numbers(how, a, b);
  }
  DTRUN_BOTH Lane center(const Lane& lane, std::int64_t) const { return lane; }
  DTRUN_BOTH State state(const Lane&, const Lane& lane, std::int64_t) const { return lane; }
  DTRUN_BOTH State join_states(const State& a, const State& b) const {
    return join_numbers(how, a, b);
  }
  DTRUN_BOTH A finish(const State& state) const {
    if (end == FoldEnd::truth) return state != A{0} ? A{1} : A{0};
    if constexpr (std::is_floating_point_v<A>) {
      if (end == FoldEnd::mean) return state / static_cast<A>(numbers.count);
      if (end == FoldEnd::root) return std::sqrt(state);
    }
    return state;
  }
};

/// The p-norm. pow() is long: not in every kernel of numbers.
template <typename A>
struct PowerFold {
  using Lane = A;
  using State = A;
  static constexpr int kRounds = 1;
  FoldNumbers numbers;

  DTRUN_BOTH Lane start(int) const { return A{0}; }
  DTRUN_BOTH Lane add(int, Lane lane, A x, Lane, std::int64_t) const {
    return lane + std::pow(std::fabs(x), static_cast<A>(numbers.number));
  }
  DTRUN_BOTH Lane join_lanes(int, Lane a, Lane b) const { return a + b; }
  DTRUN_BOTH Lane center(Lane lane, std::int64_t) const { return lane; }
  DTRUN_BOTH State state(Lane, Lane lane, std::int64_t) const { return lane; }
  DTRUN_BOTH State join_states(State a, State b) const { return a + b; }
  DTRUN_BOTH A finish(State state) const {
    return std::pow(state, static_cast<A>(1 / numbers.number));
  }
};

template <typename A>
struct FoundElement {
  A value;
  std::int64_t index;  ///< -1: none yet
};

/// Where the greatest or the least element is; of several, the first. nan is both.
template <typename A>
struct IndexFold {
  using Lane = FoundElement<A>;
  using State = Lane;
  static constexpr int kRounds = 1;
  FoldJoin how;

  DTRUN_BOTH Lane start(int) const { return {A{}, -1}; }
  DTRUN_BOTH Lane add(int round, const Lane& lane, A x, const Lane&, std::int64_t index) const {
    return join_lanes(round, lane, {x, index});
  }
  DTRUN_BOTH Lane join_lanes(int, const Lane& a, const Lane& b) const {
    if (a.index < 0) return b;
    if (b.index < 0) return a;
    const bool a_is_nan = a.value != a.value;
    const bool b_is_nan = b.value != b.value;
    const bool same = a.value == b.value || (a_is_nan && b_is_nan);
    if (same) return b.index < a.index ? b : a;
    if (a_is_nan || b_is_nan) return a_is_nan ? a : b;
    return (how == FoldJoin::greatest ? b.value > a.value : b.value < a.value) ? b : a;
  }
  DTRUN_BOTH Lane center(const Lane& lane, std::int64_t) const { return lane; }
  DTRUN_BOTH State state(const Lane&, const Lane& lane, std::int64_t) const { return lane; }
  DTRUN_BOTH State join_states(const State& a, const State& b) const { return join_lanes(0, a, b); }
  DTRUN_BOTH std::int64_t finish(const State& state) const { return state.index; }
};

struct MomentsState {
  double mean;
  double squares;
  std::int64_t count;
};

/// Means and squared distances from them, joined as Chan, Golub and LeVeque do it (1979).
template <typename A>
struct MomentsFold {
  using Lane = A;
  using State = MomentsState;
  static constexpr int kRounds = 2;
  FoldEnd end;
  FoldNumbers numbers;

  DTRUN_BOTH Lane start(int) const { return A{0}; }
  DTRUN_BOTH Lane add(int round, Lane lane, A x, Lane mean, std::int64_t) const {
    return round == 0 ? lane + x : lane + (x - mean) * (x - mean);
  }
  DTRUN_BOTH Lane join_lanes(int, Lane a, Lane b) const { return a + b; }
  DTRUN_BOTH Lane center(Lane lane, std::int64_t count) const {
    return lane / static_cast<A>(count);
  }
  DTRUN_BOTH State state(Lane mean, Lane squares, std::int64_t count) const {
    return {static_cast<double>(mean), static_cast<double>(squares), count};
  }
  DTRUN_BOTH State join_states(const State& a, const State& b) const {
    const double count = static_cast<double>(a.count + b.count);
    const double way = b.mean - a.mean;
    const double share = static_cast<double>(b.count) / count;
    return {a.mean + way * share,
            a.squares + (b.squares + way * way * static_cast<double>(a.count) * share),
            a.count + b.count};
  }
  DTRUN_BOTH A finish(const State& state) const {
    const double divisor = std::fmax(0.0, static_cast<double>(numbers.count) - numbers.number);
    const double squares =
        state.count > 0 ? state.squares : std::numeric_limits<double>::quiet_NaN();
    const double variance = squares / divisor;
    return static_cast<A>(end == FoldEnd::root ? std::sqrt(variance) : variance);
  }
};

template <typename A>
struct ExponentsState {
  A greatest;
  A sum;
};

/// The greatest element, and the sum of what the others are to it.
template <typename A>
struct ExponentsFold {
  using Lane = A;
  using State = ExponentsState<A>;
  static constexpr int kRounds = 2;

  DTRUN_BOTH Lane start(int round) const { return round == 0 ? neutral<Greatest, A>() : A{0}; }
  DTRUN_BOTH Lane add(int round, Lane lane, A x, Lane center, std::int64_t) const {
    return round == 0 ? Greatest::apply(lane, x) : lane + std::exp(x - center);
  }
  DTRUN_BOTH Lane join_lanes(int round, Lane a, Lane b) const {
    return round == 0 ? Greatest::apply(a, b) : a + b;
  }
  DTRUN_BOTH Lane center(Lane greatest, std::int64_t) const {
    return std::isinf(greatest) ? A{0} : greatest;
  }
  DTRUN_BOTH State state(Lane center, Lane sum, std::int64_t) const { return {center, sum}; }
  DTRUN_BOTH State join_states(const State& a, const State& b) const {
    const A greatest =
        Max::apply(a.sum == 0 ? b.greatest : a.greatest, b.sum == 0 ? a.greatest : b.greatest);
    return {greatest, scaled(a, greatest) + scaled(b, greatest)};
  }
  DTRUN_BOTH A finish(const State& state) const { return std::log(state.sum) + state.greatest; }

 private:
  DTRUN_BOTH static A scaled(const State& state, A greatest) {
    if (state.sum == 0) return A{0};
    return state.greatest == greatest ? state.sum : state.sum * std::exp(state.greatest - greatest);
  }
};

}  // namespace dtrun::tensors::cuda
