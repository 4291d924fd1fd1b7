#include <cmath>
#include <limits>

#include "dtrun/base/check.h"
#include "kernels/fold_families.h"
#include "kernels/row_kernel.h"
#include "kernels/simple_fold.h"

namespace dtrun::tensors {
namespace {

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
  return {kFoldDType<A>,
          kFoldDType<A>,
          sizeof(Moments),
          &moments_block<A>,
          &join_states<Moments, &moments_combine>,
          &finish_each<A, Moments, &moments_finish<A, kFinish>>};
}

// libm's, never a vector version: a result's bits do not depend on how many there are.
template <typename A>
__attribute__((noinline)) A log_of_one(A value) {
  return std::log(value);
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
  const typename RowKernels<A>::Exponentials powers = RowKernels<A>::exponentials(elements, count);
  ScaledSum<A>& sum = *static_cast<ScaledSum<A>*>(state);
  sum = {powers.greatest, powers.sum};
  if (std::isinf(sum.greatest))
    sum = {A{0}, fold_elements<Add>(elements, count, ExpOfDistance<A>{A{0}})};
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
  return {kFoldDType<A>,
          kFoldDType<A>,
          sizeof(ScaledSum<A>),
          &exponents_block<A>,
          &join_states<ScaledSum<A>, &exponents_combine<A>>,
          &finish_each<A, ScaledSum<A>, &exponents_finish<A>>};
}

template <typename A>
FoldKernel statistic_of_floating(Fold fold) {
  switch (fold) {
    case Fold::variance:
      return moments_fold<A, Finish::none>();
    case Fold::deviation:
      return moments_fold<A, Finish::root>();
    case Fold::log_sum_exp:
      return exponents_fold<A>();
    default:
      DT_CHECK(false);
  }
}

}  // namespace

FoldKernel statistic_fold(Fold fold, DType takes) {
  DT_CHECK(takes == DType::f64 || takes == DType::f32);
  return takes == DType::f64 ? statistic_of_floating<double>(fold)
                             : statistic_of_floating<float>(fold);
}

}  // namespace dtrun::tensors
