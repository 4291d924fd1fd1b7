// Rules: how an operation may be cut along one mesh axis, told in terms of the indices that run
// over its dims, as the letters of an einsum. Filled by an operator's definition, read by the
// choice. Pure.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "dispatch/axis_rule.h"

namespace dtrun::dtensor {

/// Shape and dtype of an operand: what rules and results follow from.
struct Meta {
  tensors::Shape shape;
  tensors::DType dtype = tensors::DType::f32;
};
using Metas = std::span<const Meta>;

class Rules {
 public:
  /// @param ranks of the mesh
  Rules(Metas inputs, const Meta& output, int ranks);
  int ranks() const { return ranks_; }

  using Indices = sharding::Indices;

  /// All dims broadcast against the result's.
  Rules& pointwise();
  /// Any indices; sharding::kBroadcast for a dim that is not cut.
  Rules& indices(std::vector<Indices> inputs, Indices output);
  /// An index for each dim, in order.
  static Indices each_dim(const tensors::Shape& shape);
  /// Inputs and result of one rank, dim by dim the same, but that `dim` is not cut.
  Rules& all_but(int dim);
  /// What an operation of that form has.
  Rules& einsum(sharding::Operation operation);
  /// Each index may be cut. One that the result lacks was reduced by `over`, and so are the parts.
  Rules& cut_all(ReduceOp over = ReduceOp::sum);
  /// Of one input: reducing the ranks' results is the result of the reduced input.
  Rules& commutes(ReduceOp op);
  /// Linear in all inputs together: Partial where all of them are.
  Rules& additive();
  /// Linear in each input by itself: Partial where just one of them is.
  Rules& multiplicative();
  /// Linear in this input alone.
  Rules& linear(std::size_t input);

  /// One more combination.
  Rules& also(Placements inputs, Placement output);

  /// Operands that are cut raggedly keep their cuts where nothing else is in the way.
  Rules& keep_ragged(const std::vector<Layout>& layouts);

  const sharding::Operation& operation() const { return operation_; }
  const std::vector<sharding::AxisRule>& rules() const { return rules_; }

 private:
  int ranks_;
  sharding::Operation operation_;
  std::vector<sharding::AxisRule> rules_;
};

}  // namespace dtrun::dtensor
