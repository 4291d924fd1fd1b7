#include "kernels/fold_families.h"
#include "kernels/simple_fold.h"

namespace dtrun::tensors {
namespace {

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
FoldKernel index_of() {
  return {kFoldDType<A>,
          DType::i64,
          sizeof(Found<A>),
          &index_block<Op, A>,
          &join_states<Found<A>, &index_combine<Op, A>>,
          &finish_each<std::int64_t, Found<A>, &index_finish<A>>};
}

template <typename A>
FoldKernel index_of_extreme(Fold fold) {
  return fold == Fold::index_of_maximum ? index_of<Greatest, A>() : index_of<Least, A>();
}

}  // namespace

FoldKernel index_fold(Fold fold, DType takes) {
  if (takes == DType::f64) return index_of_extreme<double>(fold);
  if (takes == DType::f32) return index_of_extreme<float>(fold);
  return index_of_extreme<std::int64_t>(fold);
}

}  // namespace dtrun::tensors
