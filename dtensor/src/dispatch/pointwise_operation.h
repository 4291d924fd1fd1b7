// Pointwise operations: any dim of the result may be cut. An operand that is broadcast along it
// stays replicated.
#pragma once

#include <vector>

#include "dispatch/axis_rule.h"

namespace dtrun::dtensor::sharding {

/// The operation's indices are the dims of the result. @throws Error kInvalidArgument for shapes
/// that do not broadcast
Operation pointwise_operation(const std::vector<Operand>& inputs, tensors::DType output_dtype);

}  // namespace dtrun::dtensor::sharding
