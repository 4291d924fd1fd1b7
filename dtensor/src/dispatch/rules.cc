#include "dispatch/rules.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "dispatch/pointwise_operation.h"

namespace dtrun::dtensor {

Rules::Rules(Metas inputs, const Meta& output) {
  for (const Meta& input : inputs) operation_.inputs.push_back({input.shape, input.dtype, {}});
  operation_.output_shape = output.shape;
  operation_.output_dtype = output.dtype;
}

Rules& Rules::pointwise() {
  const tensors::DType dtype = operation_.output_dtype;
  operation_ = sharding::pointwise_operation(operation_.inputs, dtype);
  rules_ = {sharding::replicate_rule(operation_)};
  return *this;
}

Rules& Rules::indices(std::vector<Indices> inputs, Indices output) {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    operation_.inputs[i].indices = std::move(inputs[i]);
  }
  operation_.output = std::move(output);
  rules_ = {sharding::replicate_rule(operation_)};
  return *this;
}

Rules::Indices Rules::each_dim(const tensors::Shape& shape) {
  Indices indices(shape.size());
  std::iota(indices.begin(), indices.end(), 0);
  return indices;
}

Rules& Rules::only_evenly(std::vector<std::int64_t> numbers) {
  operation_.evenly = std::move(numbers);
  return *this;
}

Rules& Rules::all_but(int dim) {
  Indices each = each_dim(operation_.inputs[0].shape);
  if (!each.empty()) each[static_cast<std::size_t>(dim)] = sharding::kBroadcast;
  return indices(std::vector<Indices>(operation_.inputs.size(), each), each);
}

Rules& Rules::einsum(sharding::Operation operation) {
  operation_ = std::move(operation);
  rules_ = {sharding::replicate_rule(operation_)};
  return *this;
}

Rules& Rules::cut_all(ReduceOp over) {
  sharding::append_cut_rules(operation_, over, rules_);
  return *this;
}

void Rules::drop_partial() {
  std::erase_if(rules_, [](const sharding::AxisRule& rule) { return rule.output.is_partial(); });
}

void Rules::drop_uneven(const std::vector<int>& mesh_shape) {
  std::erase_if(rules_, [&](const sharding::AxisRule& rule) {
    return std::ranges::none_of(mesh_shape, [&](int ranks) { return rule.evenly % ranks == 0; });
  });
}

Rules& Rules::weigh_both_ways(const std::vector<bool>& gradients, std::uint32_t saved,
                              std::optional<Layout> wished) {
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    operation_.inputs[i].wants_gradient = gradients[i];
    operation_.inputs[i].is_saved = i < 32 && (saved >> i & 1U) != 0;
  }
  operation_.is_weighed_both_ways = true;
  operation_.wished = std::move(wished);
  return *this;
}

Rules& Rules::commutes(ReduceOp op) {
  return also({Partial(op)}, Partial(op));
}

Rules& Rules::rearranges(std::size_t input) {
  linear(input);
  for (const ReduceOp op : {ReduceOp::max, ReduceOp::min, ReduceOp::product}) {
    Placements inputs(operation_.inputs.size(), Replicate());
    inputs[input] = Partial(op);
    also(std::move(inputs), Partial(op));
  }
  return *this;
}

Rules& Rules::additive() {
  for (const ReduceOp op : sharding::linear_ops(operation_.inputs, operation_.output_dtype)) {
    rules_.push_back({Placements(operation_.inputs.size(), Partial(op)), Partial(op)});
  }
  return *this;
}

Rules& Rules::added(std::size_t input) {
  operation_.inputs[input].is_added = true;
  for (sharding::AxisRule& rule : rules_)
    if (rule.output.is_partial()) rule.inputs[input] = rule.output;
  return *this;
}

Rules& Rules::also(Placements inputs, Placement output) {
  rules_.push_back({std::move(inputs), output});
  return *this;
}

Rules& Rules::keep_ragged(const std::vector<Layout>& layouts) {
  sharding::append_ragged_rules(operation_, layouts, rules_);
  return *this;
}

Rules& Rules::multiplicative() {
  for (std::size_t i = 0; i < operation_.inputs.size(); ++i) linear(i);
  return *this;
}

Rules& Rules::linear(std::size_t input) {
  const std::span<const sharding::Operand> reduced(&operation_.inputs[input], 1);
  for (const ReduceOp op : sharding::linear_ops(reduced, operation_.output_dtype)) {
    sharding::AxisRule rule{Placements(operation_.inputs.size(), Replicate()), Partial(op)};
    rule.inputs[input] = Partial(op);
    rules_.push_back(std::move(rule));
  }
  return *this;
}

}  // namespace dtrun::dtensor
