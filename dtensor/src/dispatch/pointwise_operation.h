// Pointwise operations: any dim of the result may be cut; an operand that is stretched along it
// stays whole.
#pragma once

#include <vector>

#include "dispatch/axis_rule.h"

namespace dtrun::dtensor::sharding {

/// The operation's indices are the dims of the result. @throws Error kInvalidArgument for shapes
/// that do not broadcast
Operation pointwise_operation(const std::vector<Operand>& inputs, tensors::DType output_dtype);

}  // namespace dtrun::dtensor::sharding
