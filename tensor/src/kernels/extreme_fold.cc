#include "dtrun/base/check.h"
#include "kernels/fold_families.h"
#include "kernels/simple_fold.h"

namespace dtrun::tensors {
namespace {

template <typename A>
FoldKernel extreme_of_numbers(Fold fold) {
  DT_CHECK(fold == Fold::maximum || fold == Fold::minimum);
  return fold == Fold::maximum ? simple_fold<Greatest, A>() : simple_fold<Least, A>();
}

}  // namespace

FoldKernel extreme_fold(Fold fold, DType takes) {
  if (takes == DType::f64) return extreme_of_numbers<double>(fold);
  if (takes == DType::f32) return extreme_of_numbers<float>(fold);
  return extreme_of_numbers<std::int64_t>(fold);
}

}  // namespace dtrun::tensors
