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

/// The distinct ones, in the order of the operands: the same on all ranks.
Placements ragged_cuts(const std::vector<Layout>& layouts) {
  Placements cuts;
  for (const Layout& layout : layouts) {
    for (std::size_t axis = 0; axis < layout.axes(); ++axis) {
      if (!layout.is_ragged(axis)) continue;
      const Placement cut = layout[axis].along(0);
      if (std::ranges::find(cuts, cut) == cuts.end()) cuts.push_back(cut);
    }
  }
  return cuts;
}

/// False: it cuts a dim of another number of elements.
bool cut_as(Placement& placement, const tensors::Shape& shape, const Placement& cut) {
  if (!placement.is_shard()) return true;
  const int dim = placement.dim();
  if (shape[static_cast<std::size_t>(dim)] != cut.cut()->total()) return false;
  placement = cut.along(dim);
  return true;
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
    const auto place = static_cast<std::size_t>(index);
    if (place < operation.evenly.size()) rule.evenly = operation.evenly[place];
    if (rule.output.is_replicate()) rule.output = Partial(over);
    for (const Operand& input : operation.inputs) {
      rule.inputs.push_back(cut_along(input.indices, index));
    }
    rules.push_back(std::move(rule));
  }
}

void append_ragged_rules(const Operation& operation, const std::vector<Layout>& layouts,
                         std::vector<AxisRule>& rules) {
  const std::size_t count = rules.size();
  for (const Placement& cut : ragged_cuts(layouts)) {
    for (std::size_t i = 0; i < count; ++i) {
      AxisRule rule = rules[i];
      bool fits = cut_as(rule.output, operation.output_shape, cut);
      for (std::size_t k = 0; k < rule.inputs.size(); ++k)
        fits = fits && cut_as(rule.inputs[k], operation.inputs[k].shape, cut);
      const bool cuts = rule.inputs != rules[i].inputs || rule.output != rules[i].output;
      if (fits && cuts) rules.push_back(std::move(rule));
    }
  }
}

bool fits_axis(const AxisRule& rule, int ranks) {
  const auto fits = [ranks](const Placement& placement) {
    return !placement.is_ragged() || placement.sizes().size() == static_cast<std::size_t>(ranks);
  };
  return std::ranges::all_of(rule.inputs, fits) && fits(rule.output);
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
