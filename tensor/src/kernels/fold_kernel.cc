#include "kernels/fold_kernel.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "arithmetic.h"
#include "dtrun/base/check.h"
#include "element.h"
#include "kernels/fold_lanes.h"
#include "kernels/vector_math.h"
#include "multiversion.h"

namespace dtrun::tensors {
namespace {

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
// A kernel's finish of what one state takes.
template <typename Result, typename State, Result (*kOne)(const State*, const FoldNumbers&)>
void finish_each(void* results, const void* states, std::int64_t width,
                 const FoldNumbers& numbers) {
  for (std::int64_t w = 0; w < width; ++w) {
    const State* const state = states == nullptr ? nullptr : static_cast<const State*>(states) + w;
    static_cast<Result*>(results)[w] = kOne(state, numbers);
  }
}

struct Magnitude {
  template <typename A>
  A operator()(A x) const {
    return std::fabs(x);
  }
};
struct Squared {
  template <typename A>
  A operator()(A x) const {
    return x * x;
  }
};
struct NotZero {
  template <typename A>
  A operator()(A x) const {
    return x != 0 ? A{1} : A{0};
  }
};
struct RaisedMagnitude {
  double power;
  template <typename A>
  A operator()(A x) const {
    return vector_math::pow(std::fabs(x), static_cast<A>(power));
  }
};
// Folds whose state is a number.
template <typename Op, typename T, typename Map>
void simple_block(void* state, const void* data, std::int64_t count, std::int64_t,
                  const FoldNumbers& numbers) {
  using A = ComputeType<T>;
  const T* const elements = static_cast<const T*>(data);
  if constexpr (std::is_same_v<Map, RaisedMagnitude>) {
    *static_cast<A*>(state) = fold_elements<Op>(elements, count, Map{numbers.number});
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
    for (int k = 0; k < kRows; ++k) folded = Op::apply(folded, Element<T>::load(row[k][w]));
    lane[w] = folded;
  }
}

template <typename Op, typename T>
void simple_panel(void* states, const char* data, std::int64_t row_step, std::int64_t count,
                  std::int64_t width) {
  using A = ComputeType<T>;
  constexpr int kRows = 8;
  A lanes[kFoldLanes * kPanelBytes / sizeof(A)];
  // Lanes that no row reaches would stay neutral.
  std::int64_t used = kFoldLanes;
  while (used / 2 >= count) used /= 2;
  std::fill_n(lanes, used * width, neutral<Op, A>());
  const std::int64_t step = kFoldLanes * row_step;
  for (std::int64_t first = 0; first < count; first += kRows * kFoldLanes) {
    for (std::int64_t lane = 0; lane < std::min(kFoldLanes, count - first); ++lane) {
      A* const own = lanes + lane * width;
      std::int64_t i = first + lane;
      if (i + (kRows - 1) * kFoldLanes < count) {
        add_rows<Op, kRows, A, T>(own, data + i * row_step, step, width);
        continue;
      }
      if (i + (kRows / 2 - 1) * kFoldLanes < count) {
        add_rows<Op, kRows / 2, A, T>(own, data + i * row_step, step, width);
        i += kRows / 2 * kFoldLanes;
      }
      for (; i < count; i += kFoldLanes) {
        add_rows<Op, 1, A, T>(own, data + i * row_step, step, width);
      }
    }
  }
  for (std::int64_t half = used / 2; half > 0; half /= 2) {
    for (std::int64_t i = 0; i < half * width; ++i) {
      lanes[i] = Op::apply(lanes[i], lanes[i + half * width]);
    }
  }
  std::copy_n(lanes, width, static_cast<A*>(states));
}

template <typename Op, typename T>
void simple_four(void* states, const char* data, std::int64_t step, std::int64_t count) {
  fold_four<Op>(static_cast<ComputeType<T>*>(states), reinterpret_cast<const T*>(data),
                step / static_cast<std::int64_t>(sizeof(T)), count);
}

template <typename Op, typename A>
void apply_to(A& left, const A& right) {
  left = Op::apply(left, right);
}

// libm's, never a vector version: a result's bits do not depend on how many there are.
template <typename A>
__attribute__((noinline)) A pow_of_one(A value, A power) {
  return std::pow(value, power);
}
template <typename A>
__attribute__((noinline)) A log_of_one(A value) {
  return std::log(value);
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
constexpr DType kDTypeOf = std::is_same_v<T, double>     ? DType::f64
                           : std::is_same_v<T, float>    ? DType::f32
                           : std::is_same_v<T, BFloat16> ? DType::bf16
                                                         : DType::i64;

/// T: how the elements lie in memory.
template <typename Op, typename T, typename Map = Itself, Finish kFinish = Finish::none>
FoldKernel simple_fold() {
  using A = ComputeType<T>;
  FoldKernel kernel{kDTypeOf<T>,
                    kDTypeOf<A>,
                    sizeof(A),
                    &simple_block<Op, T, Map>,
                    &join_states<A, &apply_to<Op, A>>,
                    &simple_finish<Op, A, kFinish>};
  if constexpr (std::is_same_v<Map, Itself>) kernel.panel = &simple_panel<Op, T>;
  if constexpr (std::is_same_v<Map, Itself> && std::is_same_v<Op, Add>)
    kernel.four = &simple_four<Op, T>;
  kernel.blocks_share = kIsExtreme<Op>;
  return kernel;
}

// any and all.
template <typename Op>
void truth_block(void* state, const void* data, std::int64_t count, std::int64_t,
                 const FoldNumbers&) {
  const auto* const elements = static_cast<const Boolean*>(data);
  bool truth = std::is_same_v<Op, BitAnd>;
  for (std::int64_t i = 0; i < count; ++i) truth = Op::apply(truth, elements[i].byte != 0);
  *static_cast<bool*>(state) = truth;
}
template <typename Op>
void truth_finish(void* results, const void* states, std::int64_t width, const FoldNumbers&) {
  for (std::int64_t w = 0; w < width; ++w) {
    static_cast<bool*>(results)[w] =
        states != nullptr ? static_cast<const bool*>(states)[w] : std::is_same_v<Op, BitAnd>;
  }
}
template <typename Op>
FoldKernel truth_fold() {
  return {DType::boolean,
          DType::boolean,
          sizeof(bool),
          &truth_block<Op>,
          &join_states<bool, &apply_to<Op, bool>>,
          &truth_finish<Op>};
}

// Where the greatest or least element is; of several, the first. nan is both.
template <typename A>
struct Found {
  A value;
  std::int64_t index;
};

template <typename A>
bool is_found(A element, A wanted) {
  return element == wanted || (element != element && wanted != wanted);
}

template <typename Op, typename A>
void index_block(void* state, const void* data, std::int64_t count, std::int64_t first,
                 const FoldNumbers&) {
  const A* const elements = static_cast<const A*>(data);
  const A value = fold_elements<Op>(elements, count, Itself{});
  std::int64_t i = 0;
  while (!is_found(elements[i], value)) ++i;
  *static_cast<Found<A>*>(state) = {value, first + i};
}
template <typename Op, typename A>
void index_combine(Found<A>& earlier, const Found<A>& later) {
  if (!is_found(Op::apply(earlier.value, later.value), earlier.value)) earlier = later;
}
template <typename A>
std::int64_t index_finish(const Found<A>* found, const FoldNumbers&) {
  return found->index;
}
template <typename Op, typename A>
FoldKernel index_fold() {
  return {kDTypeOf<A>,
          DType::i64,
          sizeof(Found<A>),
          &index_block<Op, A>,
          &join_states<Found<A>, &index_combine<Op, A>>,
          &finish_each<std::int64_t, Found<A>, &index_finish<A>>};
}

// Means and squared distances from them, joined as Chan, Golub and LeVeque do it (1979).
struct Moments {
  double mean;
  double squares;
  std::int64_t count;
};

template <typename A>
void moments_block(void* state, const void* data, std::int64_t count, std::int64_t,
                   const FoldNumbers&) {
  const A* const elements = static_cast<const A*>(data);
  const A mean = fold_elements<Add>(elements, count, Itself{}) / static_cast<A>(count);
  const A squares = fold_elements<Add>(elements, count, SquaredDistance<A>{mean});
  *static_cast<Moments*>(state) = {static_cast<double>(mean), static_cast<double>(squares), count};
}
void moments_combine(Moments& a, const Moments& b) {
  const double count = static_cast<double>(a.count + b.count);
  const double way = b.mean - a.mean;
  const double share = static_cast<double>(b.count) / count;
  a.squares += b.squares + way * way * static_cast<double>(a.count) * share;
  a.mean += way * share;
  a.count += b.count;
}
template <typename A, Finish kFinish>
A moments_finish(const Moments* moments, const FoldNumbers& numbers) {
  const double divisor = std::fmax(0, static_cast<double>(numbers.count) - numbers.number);
  const double squares =
      moments != nullptr ? moments->squares : std::numeric_limits<double>::quiet_NaN();
  const double variance = squares / divisor;
  return static_cast<A>(kFinish == Finish::root ? std::sqrt(variance) : variance);
}
template <typename A, Finish kFinish>
FoldKernel moments_fold() {
  return {kDTypeOf<A>,
          kDTypeOf<A>,
          sizeof(Moments),
          &moments_block<A>,
          &join_states<Moments, &moments_combine>,
          &finish_each<A, Moments, &moments_finish<A, kFinish>>};
}

// The greatest element, and the sum of what the others are to it.
template <typename A>
struct ScaledSum {
  A greatest;
  A sum;
};

template <typename A>
__attribute__((noinline)) A exp_of_way(A from, A to) {
  return from == to ? A{1} : std::exp(from - to);
}
template <typename A>
void exponents_block(void* state, const void* data, std::int64_t count, std::int64_t,
                     const FoldNumbers&) {
  const A* const elements = static_cast<const A*>(data);
  const A greatest = fold_elements<Greatest>(elements, count, Itself{});
  const A center = std::isinf(greatest) ? A{0} : greatest;
  *static_cast<ScaledSum<A>*>(state) = {
      center, fold_elements<Add>(elements, count, ExpOfDistance<A>{center})};
}
template <typename A>
void exponents_combine(ScaledSum<A>& a, const ScaledSum<A>& b) {
  const A greatest =
      Max::apply(a.sum == 0 ? b.greatest : a.greatest, b.sum == 0 ? a.greatest : b.greatest);
  a.sum = (a.sum == 0 ? A{0} : a.sum * exp_of_way(a.greatest, greatest)) +
          (b.sum == 0 ? A{0} : b.sum * exp_of_way(b.greatest, greatest));
  a.greatest = greatest;
}
template <typename A>
A exponents_finish(const ScaledSum<A>* state, const FoldNumbers&) {
  const ScaledSum<A> sum = state != nullptr ? *state : ScaledSum<A>{0, 0};
  return log_of_one(sum.sum) + sum.greatest;
}
template <typename A>
FoldKernel exponents_fold() {
  return {kDTypeOf<A>,
          kDTypeOf<A>,
          sizeof(ScaledSum<A>),
          &exponents_block<A>,
          &join_states<ScaledSum<A>, &exponents_combine<A>>,
          &finish_each<A, ScaledSum<A>, &exponents_finish<A>>};
}

template <typename A>
FoldKernel fold_of_numbers(Fold fold) {
  switch (fold) {
    case Fold::sum:
      return simple_fold<Add, A>();
    case Fold::product:
      return simple_fold<Multiply, A>();
    case Fold::maximum:
      return simple_fold<Greatest, A>();
    case Fold::minimum:
      return simple_fold<Least, A>();
    case Fold::index_of_maximum:
      return index_fold<Greatest, A>();
    case Fold::index_of_minimum:
      return index_fold<Least, A>();
    default:
      DT_CHECK(false);
  }
}

template <typename A>
FoldKernel fold_of_floating(Fold fold) {
  switch (fold) {
    case Fold::mean:
      return simple_fold<Add, A, Itself, Finish::mean>();
    case Fold::variance:
      return moments_fold<A, Finish::none>();
    case Fold::deviation:
      return moments_fold<A, Finish::root>();
    case Fold::norm_0:
      return simple_fold<Add, A, NotZero>();
    case Fold::norm_1:
      return simple_fold<Add, A, Magnitude>();
    case Fold::norm_2:
      return simple_fold<Add, A, Squared, Finish::root>();
    case Fold::norm_p:
      return simple_fold<Add, A, RaisedMagnitude, Finish::power>();
    case Fold::norm_infinity:
      return simple_fold<Greatest, A, Magnitude>();
    case Fold::norm_minus_infinity:
      return simple_fold<Least, A, Magnitude>();
    case Fold::log_sum_exp:
      return exponents_fold<A>();
    default:
      return fold_of_numbers<A>(fold);
  }
}

}  // namespace

DType fold_dtype(DType source) {
  if (source == DType::f64) return source;
  return is_floating_point(source) ? DType::f32 : DType::i64;
}

FoldKernel fold_kernel(Fold fold, DType source) {
  if (fold == Fold::any) return truth_fold<BitOr>();
  if (fold == Fold::all) return truth_fold<BitAnd>();
  // The commonest, without a conversion before.
  if (source == DType::bf16 && fold == Fold::sum) return simple_fold<Add, BFloat16>();
  if (source == DType::bf16 && fold == Fold::mean)
    return simple_fold<Add, BFloat16, Itself, Finish::mean>();
  const DType compute = fold_dtype(source);
  if (compute == DType::f64) return fold_of_floating<double>(fold);
  if (compute == DType::f32) return fold_of_floating<float>(fold);
  return fold_of_numbers<std::int64_t>(fold);
}

}  // namespace dtrun::tensors
