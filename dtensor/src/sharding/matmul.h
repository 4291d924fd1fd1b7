// The rules of matrix products: rows of the left, columns of the right and batch dims may be cut; a
// cut of the dim that is summed over gives Partial(sum). A product of two Partial operands is none.
#pragma once

#include <vector>

#include "sharding/axis_rule.h"

namespace dtrun::dtensor::sharding {

/// torch.matmul's shapes: 1-D, 2-D and batched. @throws Error kInvalidArgument for shapes that do
/// not fit
Operation matmul_operation(const Operand& left, const Operand& right, tensors::DType output_dtype);

std::vector<AxisRule> matmul_rules(const Operation& operation);

}  // namespace dtrun::dtensor::sharding
