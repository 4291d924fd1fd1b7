#include <cstring>
#include <type_traits>

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

/// As wide as A, so that a vector has as many of both.
template <typename A>
using Place = std::conditional_t<sizeof(A) == 8, std::int64_t, std::int32_t>;

template <typename Op, typename A>
DTRUN_MULTIVERSION void choose_places(A* best, Place<A>* places, const A* row, Place<A> place,
                                      std::int64_t width) {
  constexpr bool kMost = std::is_same_v<typename Op::Direction, Max>;
  DTRUN_INDEPENDENT_ROUNDS
  for (std::int64_t w = 0; w < width; ++w) {
    const A before = best[w], x = row[w];
    const bool is_further = (kMost ? x > before : x < before) | (x != x);
    const bool is_chosen = is_further & (before == before);
    best[w] = is_chosen ? x : before;
    places[w] = is_chosen ? place : places[w];
  }
}
template <typename Op, typename A>
void index_panel(void* states, const char* data, std::int64_t row_step, std::int64_t count,
                 std::int64_t width, std::int64_t first) {
  constexpr std::size_t kMost = kPanelBytes / sizeof(Found<A>);
  A best[kMost];
  Place<A> places[kMost] = {};
  std::memcpy(best, data, static_cast<std::size_t>(width) * sizeof(A));
  for (std::int64_t i = 1; i < count; ++i) {
    const A* const row = reinterpret_cast<const A*>(data + i * row_step);
    choose_places<Op>(best, places, row, static_cast<Place<A>>(i), width);
  }
  Found<A>* const found = static_cast<Found<A>*>(states);
  for (std::int64_t w = 0; w < width; ++w) found[w] = {best[w], first + places[w]};
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
          &finish_each<std::int64_t, Found<A>, &index_finish<A>>,
          nullptr,
          &index_panel<Op, A>};
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
