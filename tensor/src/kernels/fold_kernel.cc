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

template <typename A>
FoldKernel fold_of_numbers(Fold fold) {
  switch (fold) {
    case Fold::sum:
      return simple_fold<Add, A>();
    case Fold::product:
      return simple_fold<Multiply, A>();
    case Fold::maximum:
    case Fold::minimum:
      return extreme_fold(fold, kFoldDType<A>);
    case Fold::index_of_maximum:
    case Fold::index_of_minimum:
      return index_fold(fold, kFoldDType<A>);
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
