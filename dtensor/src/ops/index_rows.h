// Rows of a table, by positions of any shape.
#pragma once

#include "dtrun/dtensor/autograd/tensor.h"

namespace dtrun::dtensor {

/// @param table [v, ...] @param positions i64 [i...], within the table @return [i..., ...]
Tensor rows_at(const Tensor& table, const Tensor& positions);

}  // namespace dtrun::dtensor
