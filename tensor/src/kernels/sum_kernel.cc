#include "kernels/sum_kernel.h"

#include "arithmetic.h"
#include "element.h"
#include "multiversion.h"

namespace dtrun::tensors {
namespace {

constexpr std::int64_t kLanes = 16;
constexpr std::int64_t kBlock = 1024;

template <typename A, typename T>
DTRUN_MULTIVERSION void add_to_lanes(A* lanes, const T* data, std::int64_t groups) {
  A local[kLanes] = {};
  for (std::int64_t group = 0; group < groups; ++group) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      local[lane] = Add::apply(local[lane], static_cast<A>(Element<T>::load(data[lane])));
    }
    data += kLanes;
  }
  for (std::int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] = local[lane];
}

template <typename A, typename T>
A sum_block(const T* data, std::int64_t count) {
  A lanes[kLanes];
  const std::int64_t groups = count / kLanes;
  add_to_lanes(lanes, data, groups);
  for (std::int64_t i = groups * kLanes; i < count; ++i) {
    A& lane = lanes[i % kLanes];
    lane = Add::apply(lane, static_cast<A>(Element<T>::load(data[i])));
  }
  for (std::int64_t half = kLanes / 2; half > 0; half /= 2) {
    for (std::int64_t lane = 0; lane < half; ++lane) {
      lanes[lane] = Add::apply(lanes[lane], lanes[lane + half]);
    }
  }
  return lanes[0];
}

template <typename A, typename T>
A sum_pairwise(const T* data, std::int64_t count) {
  if (count <= kBlock) return sum_block<A>(data, count);
  const std::int64_t blocks = (count + kBlock - 1) / kBlock;
  const std::int64_t left = blocks / 2 * kBlock;
  return Add::apply(sum_pairwise<A>(data, left), sum_pairwise<A>(data + left, count - left));
}

template <typename T>
void sum_rows_of(void* target, const T* source, std::int64_t rows, std::int64_t row_size) {
  using Compute = ComputeType<T>;
  constexpr bool kFloating = std::is_floating_point_v<Compute>;
  using A = std::conditional_t<kFloating, Compute, std::int64_t>;
  using Result = std::conditional_t<kFloating, T, std::int64_t>;
  Result* sums = static_cast<Result*>(target);
  for (std::int64_t row = 0; row < rows; ++row) {
    sums[row] = Element<Result>::store(sum_pairwise<A>(source + row * row_size, row_size));
  }
}

}  // namespace

DType sum_dtype(DType dtype) {
  return is_floating_point(dtype) ? dtype : DType::i64;
}

void sum_rows(DType dtype, void* target, const void* source, std::int64_t rows,
              std::int64_t row_size) {
  dispatch(dtype, [&](auto tag) {
    sum_rows_of(target, static_cast<const typename decltype(tag)::Type*>(source), rows, row_size);
  });
}

}  // namespace dtrun::tensors
