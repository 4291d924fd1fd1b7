// Axis rules: the placements that the operands and the result of an operation may have along one
// mesh axis. A family of operations lists its rules once (pointwise.h, matmul.h); choice.h combines
// them over the axes of a mesh. Pure.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "dtrun/dtensor/layout/layout.h"
#include "dtrun/tensor/dtype.h"
#include "dtrun/tensor/shape.h"

namespace dtrun::dtensor::sharding {

/// One valid combination of placements along one axis.
struct AxisRule {
  Placements inputs;  ///< one per operand
  Placement output;
  /// What the ranks of all axes that take it, multiplied, have to divide; 0: nothing.
  std::int64_t evenly = 0;
};

/// Which index of the operation runs over every dim of a tensor, as the letters of an einsum.
using Indices = std::vector<int>;
/// A dim that is broadcast and therefore never cut.
inline constexpr int kBroadcast = -1;

struct Operand {
  tensors::Shape shape;
  tensors::DType dtype;
  Indices indices;
  bool wants_gradient = false;  ///< and the way back is counted
  bool is_saved = false;        ///< for the gradients of the others
  bool is_added = false;        ///< to what the others give: their gradients do not depend on it
};
/// What the rules need to know of an operation.
struct Operation {
  std::vector<Operand> inputs;
  Indices output;
  tensors::Shape output_shape;
  tensors::DType output_dtype;
  /// Not only the operands' way counts, but also their gradients', where they want some, and that
  /// of the result to `wished`.
  bool is_weighed_both_ways = false;
  std::optional<Layout> wished = {};
  double work = 0;  ///< multiplications and additions of all ranks, where none is done twice
  /// Of each index, the number that the ranks which cut it divide; 0 or none: any may cut it.
  std::vector<std::int64_t> evenly = {};
};

/// All operands and the result are replicated.
AxisRule replicate_rule(const Operation& operation);
/// One rule per index: tensors that have the index are cut along it, the others are replicated. If
/// the result lacks the index, it was reduced by `over` and the result is Partial(over).
void append_cut_rules(const Operation& operation, ReduceOp over, std::vector<AxisRule>& rules);

/// Repeats, for each ragged cut of an operand, the rules that cut only dims of that many elements,
/// with that cut.
/// @param layouts the operands' current layouts
void append_ragged_rules(const Operation& operation, const std::vector<Layout>& layouts,
                         std::vector<AxisRule>& rules);
/// Whether the rule fits an axis of that many ranks: a ragged cut has a size for each rank.
bool fits_axis(const AxisRule& rule, int ranks);

/// The reductions that commute with operations linear in these operands. Integers whose dtype
/// differs from the result's are left out: their sum wraps where the result does not. So are
/// averages of integers, which truncate.
std::vector<ReduceOp> linear_ops(std::span<const Operand> operands, tensors::DType output);

}  // namespace dtrun::dtensor::sharding
