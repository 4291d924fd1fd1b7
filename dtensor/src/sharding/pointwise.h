// The rules of pointwise operations: any dim of the result may be cut; an operand that is stretched
// along it stays whole.
#pragma once

#include <vector>

#include "sharding/axis_rule.h"

namespace dtrun::dtensor::sharding {

/// The operation's indices are the dims of the result. @throws Error kInvalidArgument for shapes
/// that do not broadcast
Operation pointwise_operation(const std::vector<Operand>& inputs, tensors::DType output_dtype);

/// A sum of the operands: Partial where all of them are, of the same op.
std::vector<AxisRule> additive_rules(const Operation& operation);
/// A product of the operands: Partial where just one of them is.
std::vector<AxisRule> multiplicative_rules(const Operation& operation);

}  // namespace dtrun::dtensor::sharding
