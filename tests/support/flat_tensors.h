// Tensors of one dim with one value.
#pragma once

#include <cstdint>

#include "dtrun/tensor/ops.h"

namespace dtrun::test {

inline tensors::LocalTensor flat_ones(std::int64_t count,
                                      tensors::DType dtype = tensors::DType::f32) {
  return tensors::ones({count}, {.dtype = dtype});
}
inline tensors::LocalTensor flat_full(std::int64_t count, double value,
                                      tensors::DType dtype = tensors::DType::f32) {
  return tensors::full({count}, value, {.dtype = dtype});
}

}  // namespace dtrun::test
