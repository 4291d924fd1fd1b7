#include "dtrun/base/check.h"
#include "kernels/fold_families.h"
#include "kernels/simple_fold.h"
#include "kernels/vector_math.h"

namespace dtrun::tensors {
namespace {

struct NotZero {
  template <typename A>
  A operator()(A x) const {
    return x != 0 ? A{1} : A{0};
  }
};
struct RaisedMagnitude {
  explicit RaisedMagnitude(const FoldNumbers& numbers) : power(numbers.number) {}
  double power;
  template <typename A>
  A operator()(A x) const {
    return vector_math::pow(std::fabs(x), static_cast<A>(power));
  }
};

template <typename A>
FoldKernel norm_of_floating(Fold fold) {
  switch (fold) {
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
    default:
      DT_CHECK(false);
  }
}

}  // namespace

FoldKernel norm_fold(Fold fold, DType takes) {
  if (takes == DType::f64) return norm_of_floating<double>(fold);
  if (takes == DType::f32) return norm_of_floating<float>(fold);
  DT_CHECK(takes == DType::bf16 && (fold == Fold::norm_1 || fold == Fold::norm_2));
  return fold == Fold::norm_1 ? simple_fold<Add, BFloat16, Magnitude>()
                              : simple_fold<Add, BFloat16, Squared, Finish::root>();
}

}  // namespace dtrun::tensors
