// cuda/index.h of a build without CUDA.
#include "cuda/index.h"

#include "no_cuda/absent.h"

namespace dtrun::tensors::cuda {

std::int64_t first_outside(const LocalTensor&, const PositionRange&) {
  throw_absent();
}
void count_from_start(const LocalTensor&, std::int64_t) {
  throw_absent();
}
void pick_slices(const LocalTensor&, const LocalTensor&, int, const LocalTensor&) {
  throw_absent();
}
void gather_elements(const LocalTensor&, const LocalTensor&, int, const LocalTensor&) {
  throw_absent();
}
void place_elements(Placing, const LocalTensor&, int, const LocalTensor&, const LocalTensor&,
                    Scalar) {
  throw_absent();
}
void place_true(const LocalTensor&, const LocalTensor&, const LocalTensor&) {
  throw_absent();
}
void pick_columns(const LocalTensor&, const LocalTensor&, const LocalTensor&, std::int64_t,
                  std::int64_t) {
  throw_absent();
}
void place_columns(const LocalTensor&, const LocalTensor&, const LocalTensor&, std::int64_t) {
  throw_absent();
}
void flip_elements(const LocalTensor&, const LocalTensor&, const std::vector<bool>&) {
  throw_absent();
}
void sort_elements(const LocalTensor&, const LocalTensor&, const LocalTensor&, int, SortOrder) {
  throw_absent();
}

}  // namespace dtrun::tensors::cuda
