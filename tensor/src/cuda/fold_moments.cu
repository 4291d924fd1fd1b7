// Folds whose state is more than a number, and those with long functions: their elements' dtype is
// told at run time.
#include "cuda/fold_body.h"
#include "dtrun/base/check.h"

namespace dtrun::tensors::cuda {
namespace {

template <typename A>
void run_rare(const LocalTensor& target, const LocalTensor& source, const FoldLayout& layout,
              Fold fold, const FoldNumbers& numbers) {
  using Source = AnyFoldElements<A>;
  if (fold == Fold::index_of_maximum || fold == Fold::index_of_minimum) {
    const FoldJoin how = fold == Fold::index_of_maximum ? FoldJoin::greatest : FoldJoin::least;
    return run_fold<Source>(target, source, layout, IndexFold<A>{how});
  }
  if constexpr (std::is_floating_point_v<A>) {
    if (fold == Fold::log_sum_exp) {
      return run_fold<Source>(target, source, layout, ExponentsFold<A>{});
    }
    if (fold == Fold::norm_p)
      return run_fold<Source>(target, source, layout, PowerFold<A>{numbers});
    const FoldEnd end = fold == Fold::variance ? FoldEnd::none : FoldEnd::root;
    return run_fold<Source>(target, source, layout, MomentsFold<A>{end, numbers});
  }
  DT_CHECK(false);
}

}  // namespace

bool is_rare_fold(Fold fold) {
  return fold == Fold::index_of_maximum || fold == Fold::index_of_minimum ||
         fold == Fold::variance || fold == Fold::deviation || fold == Fold::log_sum_exp ||
         fold == Fold::norm_p;
}

void run_rare_fold(const LocalTensor& target, const LocalTensor& source, const FoldLayout& layout,
                   Fold fold, const FoldNumbers& numbers) {
  const DType dtype = source.dtype();
  const auto run = dtype == DType::f64        ? &run_rare<double>
                   : is_floating_point(dtype) ? &run_rare<float>
                                              : &run_rare<std::int64_t>;
  run(target, source, layout, fold, numbers);
}

}  // namespace dtrun::tensors::cuda
