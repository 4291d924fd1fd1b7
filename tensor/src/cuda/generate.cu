#include "cuda/for_each.h"
#include "cuda/kernels.h"
#include "cuda/strided_layout.h"
#include "dtrun/base/check.h"
#include "normal_number.h"

namespace dtrun::tensors::cuda {
namespace {

/// A block of a larger tensor: the global index of its element i.
struct BlockIndex {
  int rank;
  std::int64_t sizes[kMaxLayoutDims];  ///< of the block, innermost first
  std::int64_t offsets[kMaxLayoutDims];
  std::int64_t steps[kMaxLayoutDims];  ///< of the global tensor

  DTRUN_BOTH std::int64_t of(std::int64_t i) const {
    std::int64_t index = 0;
    for (int d = 0; d < rank; ++d) {
      index += (offsets[d] + i % sizes[d]) * steps[d];
      i /= sizes[d];
    }
    return index;
  }
};

struct FillNormal {
  BlockIndex index;
  RandomKey key;
  double* target;

  DTRUN_BOTH void operator()(std::int64_t i) const { target[i] = normal_number(key, index.of(i)); }
};

template <typename T>
struct FillSequence {
  T* target;
  double start;
  double step;

  DTRUN_BOTH void operator()(std::int64_t i) const {
    if constexpr (std::is_integral_v<T>) {
      target[i] = static_cast<T>(start) + i * static_cast<T>(step);
    } else {
      target[i] = start + static_cast<T>(i) * step;
    }
  }
};

}  // namespace

void fill_normal(const LocalTensor& block, const Shape& global_shape, const Shape& offsets,
                 RandomKey key) {
  DT_CHECK(block.dtype() == DType::f64);
  if (block.shape().size() > kMaxLayoutDims) refuse_dims(block.shape());
  const Strides steps = contiguous_strides(global_shape);
  BlockIndex index{static_cast<int>(offsets.size()), {}, {}, {}};
  for (std::size_t d = offsets.size(), k = 0; d-- > 0; ++k) {
    index.sizes[k] = block.shape()[d];
    index.offsets[k] = offsets[d];
    index.steps[k] = steps[d];
  }
  for_each(block.numel(), FillNormal{index, key, block.data_as<double>()},
           current_stream(block.device().index));
}

void fill_sequence(const LocalTensor& target, double start, double step) {
  const Stream stream = current_stream(target.device().index);
  if (target.dtype() == DType::i64) {
    for_each(target.numel(),
             FillSequence<std::int64_t>{target.data_as<std::int64_t>(), start, step}, stream);
  } else {
    DT_CHECK(target.dtype() == DType::f64);
    for_each(target.numel(), FillSequence<double>{target.data_as<double>(), start, step}, stream);
  }
}

}  // namespace dtrun::tensors::cuda
