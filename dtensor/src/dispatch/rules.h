// Rules: the ways in which an operation may be cut along one mesh axis, in terms of its indices, as
// the letters of an einsum. Filled by an operator's definition and read by choice.h. Pure.
#pragma once

#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "dispatch/axis_rule.h"

namespace dtrun::dtensor {

/// Shape and dtype of an operand, from which rules and results are derived.
struct Meta {
  tensors::Shape shape;
  tensors::DType dtype = tensors::DType::f32;
};
using Metas = std::span<const Meta>;

class Rules {
 public:
  Rules(Metas inputs, const Meta& output);

  using Indices = sharding::Indices;

  /// The operand's dims broadcast against the result's.
  Rules& pointwise();
  /// Sets the indices; sharding::kBroadcast for a dim that is not cut.
  Rules& indices(std::vector<Indices> inputs, Indices output);
  /// An index is cut only where as many ranks as divide its number have equal shares. @param
  /// numbers of each index; 0: it may be cut anyhow
  Rules& only_evenly(std::vector<std::int64_t> numbers);
  /// Gives each dim an index of its own, in order.
  static Indices each_dim(const tensors::Shape& shape);
  /// Inputs and result have the same dims, and `dim` is not cut.
  Rules& all_but(int dim);
  /// The rules of an operation of that form.
  Rules& einsum(sharding::Operation operation);
  /// Allows every index to be cut. An index that the result lacks was reduced by `over`, so the
  /// result is Partial(over).
  Rules& cut_all(ReduceOp over = ReduceOp::sum);
  /// For one input: the operation commutes with the reduction of a Partial input.
  Rules& commutes(ReduceOp op);
  /// It only moves this input's elements, or puts zeros beside them: it commutes with all
  /// reductions.
  Rules& rearranges(std::size_t input = 0);
  /// Jointly linear in all inputs: the result is Partial if all of them are.
  Rules& additive();
  /// Linear in each input separately: the result is Partial if exactly one of them is.
  Rules& multiplicative();
  /// Linear in this input only.
  Rules& linear(std::size_t input);

  /// Of the rules so far: this input is added to what the others give, so where the result is
  /// Partial, it is so, too. The other inputs' gradients do not depend on it.
  Rules& added(std::size_t input);

  /// Adds one combination.
  Rules& also(Placements inputs, Placement output);

  /// Lets operands with ragged cuts keep them where no other cut prevents it.
  Rules& keep_ragged(const std::vector<Layout>& layouts);

  /// Leaves out the rules whose result is Partial.
  void drop_partial();
  /// Leaves out the rules that no axis of the mesh can take.
  void drop_uneven(const std::vector<int>& mesh_shape);
  /// Told last.
  /// @param gradients which operands want one @param saved a bit for each operand that is needed
  /// back
  Rules& weigh_both_ways(const std::vector<bool>& gradients, std::uint32_t saved,
                         std::optional<Layout> wished);

  const sharding::Operation& operation() const { return operation_; }
  const std::vector<sharding::AxisRule>& rules() const { return rules_; }

 private:
  sharding::Operation operation_;
  std::vector<sharding::AxisRule> rules_;
};

}  // namespace dtrun::dtensor
