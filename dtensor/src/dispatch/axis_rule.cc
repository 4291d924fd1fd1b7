#include "dispatch/axis_rule.h"

#include <algorithm>
#include <set>

namespace dtrun::dtensor::sharding {
namespace {

/// Shard of the dim that `index` runs over; Replicate where it runs over none.
Placement cut_along(const Indices& indices, int index) {
  const auto found = std::ranges::find(indices, index);
  return found == indices.end() ? Replicate() : Shard(static_cast<int>(found - indices.begin()));
}

}  // namespace

AxisRule replicate_rule(const Operation& operation) {
  return {Placements(operation.inputs.size(), Replicate()), Replicate()};
}

void append_cut_rules(const Operation& operation, ReduceOp over, std::vector<AxisRule>& rules) {
  std::set<int> indices(operation.output.begin(), operation.output.end());
  for (const Operand& input : operation.inputs) {
    indices.insert(input.indices.begin(), input.indices.end());
  }
  indices.erase(kBroadcast);
  for (const int index : indices) {
    AxisRule rule{{}, cut_along(operation.output, index)};
    if (rule.output.is_replicate()) rule.output = Partial(over);
    for (const Operand& input : operation.inputs) {
      rule.inputs.push_back(cut_along(input.indices, index));
    }
    rules.push_back(std::move(rule));
  }
}

std::vector<ReduceOp> linear_ops(std::span<const Operand> operands, tensors::DType output) {
  const auto is_floating = [](const Operand& operand) {
    return tensors::is_floating_point(operand.dtype);
  };
  if (std::ranges::all_of(operands, is_floating)) return {ReduceOp::sum, ReduceOp::avg};
  const bool same_dtype = std::ranges::all_of(operands, [&](const Operand& operand) {
    return is_floating(operand) || operand.dtype == output;
  });
  return same_dtype ? std::vector<ReduceOp>{ReduceOp::sum} : std::vector<ReduceOp>{};
}

}  // namespace dtrun::dtensor::sharding
