// Matrix products: the left operand's rows, the right one's columns, batch dims, and the dim that
// is summed over may be cut.
#pragma once

#include <vector>

#include "dispatch/axis_rule.h"

namespace dtrun::dtensor::sharding {

/// torch.matmul's shapes: 1-D, 2-D and batched. @throws Error kInvalidArgument for shapes that do
/// not fit
Operation matmul_operation(const Operand& left, const Operand& right, tensors::DType output_dtype);

}  // namespace dtrun::dtensor::sharding
