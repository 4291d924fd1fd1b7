#include "loops/strided_loop.h"

#include "dtrun/base/check.h"

namespace dtrun::tensors {
namespace {

/// True when `inner` should be walked faster than `outer`: the first operand that moves in both
/// decides.
bool belongs_inside(const LoopDim& inner, const LoopDim& outer) {
  for (std::size_t k = 0; k < kMostOperands; ++k) {
    if (inner.steps[k] == 0 || outer.steps[k] == 0) continue;
    if (inner.steps[k] != outer.steps[k]) return inner.steps[k] < outer.steps[k];
  }
  return false;
}

bool continues(const LoopDim& inner, const LoopDim& outer) {
  for (std::size_t k = 0; k < kMostOperands; ++k) {
    if (outer.steps[k] != inner.steps[k] * inner.size) return false;
  }
  return true;
}

}  // namespace

// The comparison is no strict order when steps are 0, so std::sort would not do.
void StridedLoop::add_dim(std::int64_t size, const LoopSteps& steps) {
  if (size == 1) return;
  DT_CHECK(count_ < kMostDims);
  const LoopDim dim{size, steps};
  int position = count_++;
  for (; position > 0 && belongs_inside(dim, dims_[static_cast<std::size_t>(position - 1)]);
       --position) {
    dims_[static_cast<std::size_t>(position)] = dims_[static_cast<std::size_t>(position - 1)];
  }
  dims_[static_cast<std::size_t>(position)] = dim;
}

void StridedLoop::merge() {
  int merged = 0;
  for (int d = 0; d < count_; ++d) {
    const LoopDim dim = dims_[static_cast<std::size_t>(d)];
    LoopDim* const last = merged > 0 ? &dims_[static_cast<std::size_t>(merged - 1)] : nullptr;
    if (last != nullptr && continues(*last, dim)) {
      last->size *= dim.size;
    } else {
      dims_[static_cast<std::size_t>(merged++)] = dim;
    }
  }
  if (merged == 0) dims_[static_cast<std::size_t>(merged++)] = {1, {}};
  count_ = merged;
  for (std::size_t k = 0; count_ > 1 && k < kMostOperands; ++k) {
    tiled_ = tiled_ || (dims_[1].steps[k] != 0 && dims_[1].steps[k] < dims_[0].steps[k]);
  }
}

LoopOperand LoopOperand::of(const LocalTensor& tensor) {
  return {tensor.data(), tensor.strides(), tensors::item_size(tensor.dtype())};
}

void for_each_row(const Shape& shape, std::span<const LoopOperand> operands, RowKernel kernel) {
  DT_CHECK(!operands.empty() && operands.size() <= kMostOperands);
  if (numel(shape) == 0) return;
  StridedLoop loop;
  for (std::size_t k = 0; k < operands.size(); ++k) {
    loop.set_operand(static_cast<int>(k), operands[k].data);
  }
  for (std::size_t d = shape.size(); d-- > 0;) {
    LoopSteps steps{};
    for (std::size_t k = 0; k < operands.size(); ++k) {
      steps[k] = operands[k].strides[d] * static_cast<std::int64_t>(operands[k].item_size);
    }
    loop.add_dim(shape[d], steps);
  }
  loop.merge();
  loop.run([kernel](const LoopPointers& pointers, const LoopSteps& steps, std::int64_t count) {
    kernel(pointers.data(), steps.data(), count);
  });
}

}  // namespace dtrun::tensors
