// Folds to a number: sums, products, extremes, truths, norms.
#include "cuda/fold_body.h"
#include "cuda/reductions.h"
#include "dtrun/base/check.h"

namespace dtrun::tensors::cuda {
namespace {

template <typename A>
NumberFold<A> number_fold(Fold fold, const FoldNumbers& numbers) {
  using Join = FoldJoin;
  using Map = FoldMap;
  using End = FoldEnd;
  switch (fold) {
    case Fold::sum:
      return {Join::add, Map::itself, End::none, numbers};
    case Fold::mean:
      return {Join::add, Map::itself, End::mean, numbers};
    case Fold::product:
      return {Join::multiply, Map::itself, End::none, numbers};
    case Fold::maximum:
      return {Join::greatest, Map::itself, End::none, numbers};
    case Fold::minimum:
      return {Join::least, Map::itself, End::none, numbers};
    case Fold::any:
      return {Join::add, Map::not_zero, End::truth, numbers};
    case Fold::all:
      return {Join::multiply, Map::not_zero, End::none, numbers};
    case Fold::norm_0:
      return {Join::add, Map::not_zero, End::none, numbers};
    case Fold::norm_1:
      return {Join::add, Map::magnitude, End::none, numbers};
    case Fold::norm_2:
      return {Join::add, Map::square, End::root, numbers};
    case Fold::norm_infinity:
      return {Join::greatest, Map::magnitude, End::none, numbers};
    default:
      break;
  }
  DT_CHECK(fold == Fold::norm_minus_infinity);
  return {Join::least, Map::magnitude, End::none, numbers};
}

}  // namespace

void fold_elements(const LocalTensor& target, const LocalTensor& source,
                   const std::vector<bool>& reduced, Fold fold, const FoldNumbers& numbers) {
  if (target.numel() == 0) return;
  const FoldLayout layout = fold_layout(source, reduced);
  if (is_rare_fold(fold)) return run_rare_fold(target, source, layout, fold, numbers);
  const auto run = [&]<typename Source>(TypeTag<Source>) {
    using A = typename Source::Number;
    run_fold<Source>(target, source, layout, number_fold<A>(fold, numbers));
  };
  switch (source.dtype()) {
    case DType::f64:
      return run(TypeTag<FoldElements<double>>{});
    case DType::f32:
      return run(TypeTag<FoldElements<float>>{});
    case DType::f16:
      return run(TypeTag<FoldElements<Float16>>{});
    case DType::bf16:
      return run(TypeTag<FoldElements<BFloat16>>{});
    case DType::i64:
      return run(TypeTag<FoldElements<std::int64_t>>{});
    default:
      return run(TypeTag<AnyFoldElements<std::int64_t>>{});
  }
}

}  // namespace dtrun::tensors::cuda
