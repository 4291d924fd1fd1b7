#include "kernels/fold_kernel.h"

#include "dtrun/base/check.h"
#include "kernels/fold_families.h"
#include "kernels/simple_fold.h"

namespace dtrun::tensors {
namespace {

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
  return {kFoldDType<A>,
          DType::i64,
          sizeof(Found<A>),
          &index_block<Op, A>,
          &join_states<Found<A>, &index_combine<Op, A>>,
          &finish_each<std::int64_t, Found<A>, &index_finish<A>>};
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
    case Fold::deviation:
    case Fold::log_sum_exp:
      return statistic_fold(fold, kFoldDType<A>);
    case Fold::norm_0:
    case Fold::norm_1:
    case Fold::norm_2:
    case Fold::norm_p:
    case Fold::norm_infinity:
    case Fold::norm_minus_infinity:
      return norm_fold(fold, kFoldDType<A>);
    default:
      return fold_of_numbers<A>(fold);
  }
}

/// The commonest, without a conversion before.
bool has_bf16_kernel(Fold fold) {
  return fold == Fold::sum || fold == Fold::mean || fold == Fold::norm_1 || fold == Fold::norm_2;
}
FoldKernel fold_of_bf16(Fold fold) {
  if (fold == Fold::sum) return simple_fold<Add, BFloat16>();
  if (fold == Fold::mean) return simple_fold<Add, BFloat16, Itself, Finish::mean>();
  return norm_fold(fold, DType::bf16);
}

}  // namespace

DType fold_dtype(DType source) {
  if (source == DType::f64) return source;
  return is_floating_point(source) ? DType::f32 : DType::i64;
}

FoldKernel fold_kernel(Fold fold, DType source) {
  if (fold == Fold::any) return truth_fold<BitOr>();
  if (fold == Fold::all) return truth_fold<BitAnd>();
  if (source == DType::bf16 && has_bf16_kernel(fold)) return fold_of_bf16(fold);
  const DType compute = fold_dtype(source);
  if (compute == DType::f64) return fold_of_floating<double>(fold);
  if (compute == DType::f32) return fold_of_floating<float>(fold);
  return fold_of_numbers<std::int64_t>(fold);
}

}  // namespace dtrun::tensors
