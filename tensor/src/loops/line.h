// Lines: the elements along one dim of a tensor.
#pragma once

#include "dtrun/tensor/shape.h"

namespace dtrun::tensors {

/// In elements, of the line with that number among those along `dim` of a tensor of `shape`, in
/// another tensor's strides.
inline std::int64_t line_offset(const Shape& shape, const Strides& strides, int dim,
                                std::int64_t line) {
  std::int64_t offset = 0;
  for (int d = static_cast<int>(shape.size()) - 1; d >= 0; --d) {
    if (d == dim) continue;
    const auto place = static_cast<std::size_t>(d);
    offset += line % shape[place] * strides[place];
    line /= shape[place];
  }
  return offset;
}

}  // namespace dtrun::tensors
