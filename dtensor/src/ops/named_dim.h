// A dim of a tensor as a caller names it: from -dims to dims - 1.
#pragma once

#include <string_view>

#include "dtrun/dtensor/autograd/tensor.h"

namespace dtrun::dtensor {

/// Counted from the front. @throws Error kInvalidArgument naming operator, dim and tensor
int named_dim(std::string_view op, const Tensor& a, int dim);
/// The same, where a tensor without dims counts as one of one dim.
int named_dim_or_only(std::string_view op, const Tensor& a, int dim);

}  // namespace dtrun::dtensor
