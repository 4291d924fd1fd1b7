// OwnOperator: an operator that the program adds. It has a kernel for one rank's parts and sharding
// rules. On a mesh it works as the library's operators do: the cheapest rule is chosen, operands
// are redistributed, explain() tells why, gradients flow.
// torch.distributed.tensor's register_sharding, with the operator.
//
//     const OwnOperator row_sums({
//         .name = "row_sums",
//         .dims = "ij->i",
//         .kernel = [](const LocalTensors& in, const OperatorSite&) { return my_sums(in[0]); }});
//     const Tensor y = row_sums(x);  // [S(0), S(1)] gives [S(0), P(sum)], without communication
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "dtrun/dtensor/autograd/tensor.h"
#include "dtrun/dtensor/mesh/spec.h"

namespace dtrun::dtensor {

using LocalTensors = std::vector<LocalTensor>;

/// Where this rank's parts lie in the whole tensors. Empty specs for local tensors.
struct OperatorSite {
  std::vector<Spec> inputs;
  Spec output;
};

/// Of a whole tensor.
struct ShapeAndDType {
  Shape shape;
  DType dtype = DType::f32;
};

struct OperatorDefinition {
  std::string name;
  /// A letter for each dim, as an einsum's: "bij,jk->bik". A mesh axis may cut any letter: all
  /// that have it are cut along it, the others are whole. One that the result lacks was reduced by
  /// `reduces`, and the ranks' results are Partial. "..." stands for as many dims as are left; an
  /// operand that has fewer of them lacks the first ones.
  std::string dims;
  /// Letters that no axis may cut: the kernel needs all of them.
  std::string whole = "";
  ReduceOp reduces = ReduceOp::sum;
  /// More rules, along one mesh axis: "P(sum), R -> P(sum)".
  std::vector<std::string> rules = {};
  /// Computes this rank's part of the result from its parts of the operands, in new memory or as a
  /// view. It is called on each rank of the mesh, also with empty parts.
  std::function<LocalTensor(const LocalTensors& parts, const OperatorSite& site)> kernel = {};
  /// Of the whole result. Default: each letter's extent, and the first operand's dtype.
  std::function<ShapeAndDType(const std::vector<ShapeAndDType>& inputs)> result = {};
  /// A gradient for each operand, undefined where none flows; made of public operators it is
  /// itself sharded and can be differentiated again. None: no gradient flows.
  std::function<Tensors(const Tensors& inputs, const Tensor& output, const Tensor& gradient)>
      backward = {};
};

/// A handle; the operator itself stays as long as the program. Thread-safe, if its functions are.
/// check_rule (ops/check_rule.h) proves the rules.
class OwnOperator {
 public:
  /// @throws Error kInvalidArgument for dims or rules that cannot be read, and without a kernel
  explicit OwnOperator(OperatorDefinition definition);

  /// Collective where operands have to be redistributed. @throws Error kInvalidArgument: another
  /// number of operands or dims than `dims` has, letters of two extents, a kernel's result that is
  /// not the part that the rule claims
  Tensor operator()(const Tensors& inputs) const;
  Tensor operator()(const Tensor& a) const { return (*this)(Tensors{a}); }
  Tensor operator()(const Tensor& a, const Tensor& b) const { return (*this)(Tensors{a, b}); }

 private:
  struct Body;
  const Body* body_;
};

}  // namespace dtrun::dtensor
