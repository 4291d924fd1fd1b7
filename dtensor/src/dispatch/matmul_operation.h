// Matrix products: rows of the left, columns of the right and batch dims may be cut, and the dim
// that is summed over.
#pragma once

#include <vector>

#include "dispatch/axis_rule.h"

namespace dtrun::dtensor::sharding {

/// torch.matmul's shapes: 1-D, 2-D and batched. @throws Error kInvalidArgument for shapes that do
/// not fit
Operation matmul_operation(const Operand& left, const Operand& right, tensors::DType output_dtype);

}  // namespace dtrun::dtensor::sharding
