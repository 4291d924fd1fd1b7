// Shape arithmetic: sizes and strides per dim, in elements. Pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "dtrun/tensor/dims.h"

namespace dtrun::tensors {

/// Sizes per dim; {} is a 0-dim tensor with one element.
using Shape = Dims;
using Strides = Dims;

/// Product of the sizes. @throws Error kInvalidArgument on a negative size or overflow
std::int64_t numel(const Shape& shape);
Strides contiguous_strides(const Shape& shape);
/// -1 counts from the end. @throws Error kInvalidArgument naming dim and range
int normalize_dim(int dim, std::size_t rank);
/// NumPy's rule. @throws Error kInvalidArgument naming both shapes and the dim
Shape broadcast_shapes(const Shape& a, const Shape& b);
/// "[2, 3]".
std::string shape_to_string(const Shape& shape);
namespace values {
/// For print().
inline std::string to_string(const Dims& dims) {
  return shape_to_string(dims);
}
}  // namespace values

}  // namespace dtrun::tensors
