// Axis rules: what the operands and the result of an operation may be along one mesh axis. A family
// of operations lists its rules once (pointwise.h, matmul.h); choice.h combines them over the axes
// of a mesh. Pure.
#pragma once

#include <span>
#include <vector>

#include "dtrun/dtensor/layout/layout.h"
#include "dtrun/tensor/dtype.h"
#include "dtrun/tensor/shape.h"

namespace dtrun::dtensor::sharding {

/// One legal combination along one axis.
struct AxisRule {
  Placements inputs;  ///< one per operand
  Placement output;
};

/// Which index of the operation runs over every dim of a tensor, as the letters of an einsum.
using Indices = std::vector<int>;
/// A dim that is stretched to the result's size and so never cut.
inline constexpr int kBroadcast = -1;

struct Operand {
  tensors::Shape shape;
  tensors::DType dtype;
  Indices indices;
};
/// An operation as far as its rules go.
struct Operation {
  std::vector<Operand> inputs;
  Indices output;
  tensors::Shape output_shape;
  tensors::DType output_dtype;
};

/// All operands and the result whole.
AxisRule replicate_rule(const Operation& operation);
/// One rule per index: whoever has it is cut along it, the others are whole. An index that the
/// result does not have was reduced by `over`: the result is Partial(over).
void append_cut_rules(const Operation& operation, ReduceOp over, std::vector<AxisRule>& rules);

/// For each ragged cut that an operand has, the rules that cut nothing but dims of as many
/// elements, once more with that cut.
/// @param layouts what the operands are now
void append_ragged_rules(const Operation& operation, const std::vector<Layout>& layouts,
                         std::vector<AxisRule>& rules);
/// Whether it can be told of an axis of so many ranks: a ragged cut has a size for each.
bool fits_axis(const AxisRule& rule, int ranks);

/// The ops whose reduction of these operands commutes with what is linear in them. A sum in an
/// integer dtype that the result does not have would wrap where the result does not; an average of
/// integers truncates.
std::vector<ReduceOp> linear_ops(std::span<const Operand> operands, tensors::DType output);

}  // namespace dtrun::dtensor::sharding
