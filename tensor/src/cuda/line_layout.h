// LineLayout: where the lines along one dim lie in up to four strided operands of one shape, as
// kernels take it. Pure.
#pragma once

#include <array>
#include <cstdint>

#include "cuda/strided_layout.h"

namespace dtrun::tensors::cuda {

template <int kOperands>
struct LineLayout {
  StridedLayout<kOperands> others;     ///< the other dims
  std::int64_t steps[kOperands] = {};  ///< along the line
  std::int64_t length = 1;
  std::int64_t lines = 1;
};

/// @param dim in [0, rank); a shape without dims is one line of one element
template <int kOperands>
LineLayout<kOperands> make_lines(const Shape& shape, int dim,
                                 const std::array<const Strides*, kOperands>& strides) {
  LineLayout<kOperands> layout;
  Shape others;
  std::array<Strides, kOperands> other_strides;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (static_cast<int>(d) == dim) {
      layout.length = shape[d];
      for (std::size_t k = 0; k < kOperands; ++k) layout.steps[k] = (*strides[k])[d];
      continue;
    }
    others.push_back(shape[d]);
    for (std::size_t k = 0; k < kOperands; ++k) other_strides[k].push_back((*strides[k])[d]);
  }
  std::array<const Strides*, kOperands> pointers;
  for (std::size_t k = 0; k < kOperands; ++k) pointers[k] = &other_strides[k];
  layout.others = make_layout<kOperands>(others, pointers);
  layout.lines = layout.others.count;
  return layout;
}

struct Division {
  std::int64_t quotient, remainder;
};
/// Of numbers that are not negative. In 64 bits it takes several times as long.
DTRUN_BOTH inline Division divide(std::int64_t number, std::int64_t divisor) {
  if (((number | divisor) >> 32) == 0) {
    const auto quotient = static_cast<std::uint32_t>(number) / static_cast<std::uint32_t>(divisor);
    return {quotient, number - quotient * divisor};
  }
  const std::int64_t quotient = number / divisor;
  return {quotient, number - quotient * divisor};
}

}  // namespace dtrun::tensors::cuda
