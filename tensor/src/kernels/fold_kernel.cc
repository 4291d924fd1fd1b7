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
template <typename Op, typename A, typename Map>
void simple_block(void* state, const void* data, std::int64_t count, std::int64_t,
                  const FoldNumbers& numbers) {
  const A* const elements = static_cast<const A*>(data);
  if constexpr (std::is_same_v<Map, RaisedMagnitude>) {
    *static_cast<A*>(state) = fold_elements<Op>(elements, count, Map{numbers.number});
  } else {
    *static_cast<A*>(state) = fold_elements<Op>(elements, count, Map{});
  }
}

template <typename Op, typename A>
DTRUN_MULTIVERSION void panel_rows(A* lanes, const char* data, std::int64_t row_step,
                                   std::int64_t count, std::int64_t width) {
  for (std::int64_t i = 0; i < count; ++i) {
    const A* const row = reinterpret_cast<const A*>(data + i * row_step);
    A* const lane = lanes + i % kFoldLanes * width;
    if (i < kFoldLanes) {
      for (std::int64_t w = 0; w < width; ++w) lane[w] = Op::apply(neutral<Op, A>(), row[w]);
      continue;
    }
    DTRUN_INDEPENDENT_ROUNDS
    for (std::int64_t w = 0; w < width; ++w) lane[w] = Op::apply(lane[w], row[w]);
  }
}

template <typename Op, typename A>
void simple_panel(void* states, const char* data, std::int64_t row_step, std::int64_t count,
                  std::int64_t width) {
  A lanes[kFoldLanes * kPanelWidth];
  // Lanes that no row reaches would stay neutral.
  std::int64_t used = kFoldLanes;
  while (used / 2 >= count) used /= 2;
  for (std::int64_t i = std::min(count, used) * width; i < used * width; ++i)
    lanes[i] = neutral<Op, A>();
  panel_rows<Op>(lanes, data, row_step, count, width);
  for (std::int64_t half = used / 2; half > 0; half /= 2) {
    for (std::int64_t i = 0; i < half * width; ++i) {
      lanes[i] = Op::apply(lanes[i], lanes[i + half * width]);
    }
  }
  for (std::int64_t w = 0; w < width; ++w) static_cast<A*>(states)[w] = lanes[w];
}

template <typename Op, typename A>
void simple_combine(void* left, const void* right) {
  *static_cast<A*>(left) = Op::apply(*static_cast<A*>(left), *static_cast<const A*>(right));
}

enum class Finish { none, mean, root, power };

template <typename Op, typename A, Finish kFinish>
void simple_finish(void* result, const void* state, const FoldNumbers& numbers) {
  A value = state != nullptr ? *static_cast<const A*>(state) : neutral<Op, A>();
  if constexpr (kFinish == Finish::mean) value /= static_cast<A>(numbers.count);
  if constexpr (kFinish == Finish::root) value = std::sqrt(value);
  if constexpr (kFinish == Finish::power)
    value = std::pow(value, static_cast<A>(1 / numbers.number));
  *static_cast<A*>(result) = value;
}

template <typename A>
constexpr DType kDTypeOf = std::is_same_v<A, double>  ? DType::f64
                           : std::is_same_v<A, float> ? DType::f32
                                                      : DType::i64;

template <typename Op, typename A, typename Map = Itself, Finish kFinish = Finish::none>
FoldKernel simple_fold() {
  FoldKernel kernel{kDTypeOf<A>,
                    kDTypeOf<A>,
                    sizeof(A),
                    &simple_block<Op, A, Map>,
                    nullptr,
                    &simple_combine<Op, A>,
                    &simple_finish<Op, A, kFinish>};
  if constexpr (std::is_same_v<Map, Itself>) kernel.panel = &simple_panel<Op, A>;
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
void truth_finish(void* result, const void* state, const FoldNumbers&) {
  *static_cast<bool*>(result) =
      state != nullptr ? *static_cast<const bool*>(state) : std::is_same_v<Op, BitAnd>;
}
template <typename Op>
FoldKernel truth_fold() {
  return {DType::boolean,   DType::boolean, sizeof(bool),
          &truth_block<Op>, nullptr,        &simple_combine<Op, bool>,
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
void index_combine(void* left, const void* right) {
  Found<A>& earlier = *static_cast<Found<A>*>(left);
  const Found<A>& later = *static_cast<const Found<A>*>(right);
  if (!is_found(Op::apply(earlier.value, later.value), earlier.value)) earlier = later;
}
template <typename A>
void index_finish(void* result, const void* state, const FoldNumbers&) {
  *static_cast<std::int64_t*>(result) = static_cast<const Found<A>*>(state)->index;
}
template <typename Op, typename A>
FoldKernel index_fold() {
  return {kDTypeOf<A>,           DType::i64,      sizeof(Found<A>), &index_block<Op, A>, nullptr,
          &index_combine<Op, A>, &index_finish<A>};
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
void moments_combine(void* left, const void* right) {
  Moments& a = *static_cast<Moments*>(left);
  const Moments& b = *static_cast<const Moments*>(right);
  const double count = static_cast<double>(a.count + b.count);
  const double way = b.mean - a.mean;
  const double share = static_cast<double>(b.count) / count;
  a.squares += b.squares + way * way * static_cast<double>(a.count) * share;
  a.mean += way * share;
  a.count += b.count;
}
template <typename A, Finish kFinish>
void moments_finish(void* result, const void* state, const FoldNumbers& numbers) {
  const double divisor = std::fmax(0, static_cast<double>(numbers.count) - numbers.number);
  const double squares = state != nullptr ? static_cast<const Moments*>(state)->squares
                                          : std::numeric_limits<double>::quiet_NaN();
  const double variance = squares / divisor;
  *static_cast<A*>(result) =
      static_cast<A>(kFinish == Finish::root ? std::sqrt(variance) : variance);
}
template <typename A, Finish kFinish>
FoldKernel moments_fold() {
  return {kDTypeOf<A>,
          kDTypeOf<A>,
          sizeof(Moments),
          &moments_block<A>,
          nullptr,
          &moments_combine,
          &moments_finish<A, kFinish>};
}

// The greatest element, and the sum of what the others are to it.
template <typename A>
struct ScaledSum {
  A greatest;
  A sum;
};

template <typename A>
A exp_of_way(A from, A to) {
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
void exponents_combine(void* left, const void* right) {
  ScaledSum<A>& a = *static_cast<ScaledSum<A>*>(left);
  const ScaledSum<A>& b = *static_cast<const ScaledSum<A>*>(right);
  const A greatest =
      Max::apply(a.sum == 0 ? b.greatest : a.greatest, b.sum == 0 ? a.greatest : b.greatest);
  a.sum = (a.sum == 0 ? A{0} : a.sum * exp_of_way(a.greatest, greatest)) +
          (b.sum == 0 ? A{0} : b.sum * exp_of_way(b.greatest, greatest));
  a.greatest = greatest;
}
template <typename A>
void exponents_finish(void* result, const void* state, const FoldNumbers&) {
  const ScaledSum<A> sum =
      state != nullptr ? *static_cast<const ScaledSum<A>*>(state) : ScaledSum<A>{0, 0};
  *static_cast<A*>(result) = std::log(sum.sum) + sum.greatest;
}
template <typename A>
FoldKernel exponents_fold() {
  return {kDTypeOf<A>, kDTypeOf<A>,           sizeof(ScaledSum<A>), &exponents_block<A>,
          nullptr,     &exponents_combine<A>, &exponents_finish<A>};
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

FoldKernel fold_kernel(Fold fold, DType compute) {
  if (fold == Fold::any) return truth_fold<BitOr>();
  if (fold == Fold::all) return truth_fold<BitAnd>();
  if (compute == DType::f64) return fold_of_floating<double>(fold);
  if (compute == DType::f32) return fold_of_floating<float>(fold);
  DT_CHECK(compute == DType::i64);
  return fold_of_numbers<std::int64_t>(fold);
}

}  // namespace dtrun::tensors
