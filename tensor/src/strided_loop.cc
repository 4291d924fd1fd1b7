#include "strided_loop.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "dtrun/base/check.h"

namespace dtrun::tensors {
namespace {

constexpr std::size_t kMaxOperands = 3;
/// Where the operands disagree about the fastest dim, squares of this side stay in the cache.
constexpr std::int64_t kTile = 64;

using Steps = std::array<std::int64_t, kMaxOperands>;

struct LoopDim {
  std::int64_t size;
  Steps steps;  ///< bytes, per operand
};

/// True when `inner` should be walked faster than `outer`: the first operand that moves in both
/// decides.
bool belongs_inside(const LoopDim& inner, const LoopDim& outer) {
  for (std::size_t k = 0; k < kMaxOperands; ++k) {
    if (inner.steps[k] == 0 || outer.steps[k] == 0) continue;
    if (inner.steps[k] != outer.steps[k]) return inner.steps[k] < outer.steps[k];
  }
  return false;
}

bool continues(const LoopDim& inner, const LoopDim& outer) {
  for (std::size_t k = 0; k < kMaxOperands; ++k) {
    if (outer.steps[k] != inner.steps[k] * inner.size) return false;
  }
  return true;
}

/// Innermost first; sizes of 1 are gone.
std::vector<LoopDim> plan_dims(const Shape& shape, std::span<const LoopOperand> operands) {
  std::vector<LoopDim> dims;
  for (std::size_t d = shape.size(); d-- > 0;) {
    if (shape[d] == 1) continue;
    LoopDim dim{shape[d], {}};
    for (std::size_t k = 0; k < operands.size(); ++k) {
      dim.steps[k] = operands[k].strides[d] * static_cast<std::int64_t>(operands[k].item_size);
    }
    // The comparison is no strict order when strides are 0, so std::sort would not do.
    std::size_t position = dims.size();
    while (position > 0 && belongs_inside(dim, dims[position - 1])) --position;
    dims.insert(dims.begin() + static_cast<std::ptrdiff_t>(position), dim);
  }
  std::vector<LoopDim> merged;
  for (const LoopDim& dim : dims) {
    if (!merged.empty() && continues(merged.back(), dim)) {
      merged.back().size *= dim.size;
    } else {
      merged.push_back(dim);
    }
  }
  while (merged.size() < 2) merged.push_back({1, {}});
  return merged;
}

class Walk {
 public:
  Walk(std::vector<LoopDim> dims, std::span<const LoopOperand> operands, RowKernel kernel)
      : dims_(std::move(dims)), kernel_(kernel) {
    for (std::size_t k = 0; k < operands.size(); ++k) {
      pointers_[k] = static_cast<char*>(operands[k].data);
    }
    for (std::size_t k = 0; k < operands.size(); ++k) {
      const std::int64_t outer_step = dims_[1].steps[k];
      tiled_ = tiled_ || (outer_step != 0 && outer_step < dims_[0].steps[k]);
    }
  }

  void run() {
    std::vector<std::int64_t> index(dims_.size(), 0);
    for (;;) {
      if (tiled_) {
        tiles();
      } else {
        rows(pointers_, dims_[1].size, dims_[0].size);
      }
      std::size_t d = 2;
      for (; d < dims_.size(); ++d) {
        move(pointers_, d, 1);
        if (++index[d] < dims_[d].size) break;
        move(pointers_, d, -dims_[d].size);
        index[d] = 0;
      }
      if (d == dims_.size()) return;
    }
  }

 private:
  using Pointers = std::array<char*, kMaxOperands>;

  void move(Pointers& pointers, std::size_t d, std::int64_t count) const {
    for (std::size_t k = 0; k < kMaxOperands; ++k) {
      if (pointers[k] != nullptr) pointers[k] += dims_[d].steps[k] * count;
    }
  }

  void rows(Pointers pointers, std::int64_t row_count, std::int64_t row_size) const {
    for (std::int64_t row = 0; row < row_count; ++row) {
      kernel_(pointers.data(), dims_[0].steps.data(), row_size);
      move(pointers, 1, 1);
    }
  }

  void tiles() const {
    for (std::int64_t i = 0; i < dims_[1].size; i += kTile) {
      for (std::int64_t j = 0; j < dims_[0].size; j += kTile) {
        Pointers start = pointers_;
        move(start, 1, i);
        move(start, 0, j);
        rows(start, std::min(kTile, dims_[1].size - i), std::min(kTile, dims_[0].size - j));
      }
    }
  }

  std::vector<LoopDim> dims_;
  RowKernel kernel_;
  Pointers pointers_{};
  bool tiled_ = false;
};

}  // namespace

LoopOperand LoopOperand::of(const LocalTensor& tensor) {
  return {tensor.data(), tensor.strides(), tensors::item_size(tensor.dtype())};
}

void for_each_row(const Shape& shape, std::span<const LoopOperand> operands, RowKernel kernel) {
  DT_CHECK(!operands.empty() && operands.size() <= kMaxOperands);
  if (numel(shape) == 0) return;
  Walk(plan_dims(shape, operands), operands, kernel).run();
}

}  // namespace dtrun::tensors
