// FunctionNode: the node of one call of a Function (function.h), with one gradient for each result.
#pragma once

#include <string>
#include <vector>

#include "autograd/op_node.h"
#include "dtrun/dtensor/autograd/function.h"

namespace dtrun::dtensor {

class FunctionNode : public Node {
 public:
  FunctionNode(std::string name, const Tensors& inputs, autograd::FunctionBackward backward);

  /// Fills in which inputs want a gradient, for needs_input_grad().
  void begin(autograd::FunctionContext& context) const;
  /// Takes over what forward saved, and makes this node the producer of the differentiable results.
  /// @param node this node
  static Tensors finish(const base::Counted<FunctionNode>& node, autograd::FunctionContext context,
                        const Tensors& inputs, const Tensors& results);

  std::string_view name() const override { return name_; }
  std::span<const Edge> edges() const override { return edges_; }
  Tensors backward(std::span<const Tensor> gradients) override;
  void release() override;
  /// @throws Error as FunctionContext::saved_tensors
  Tensors saved_tensors() const;

 private:
  /// A saved tensor, and its edge in the graph.
  struct Kept {
    Saved saved;
    enum class Origin : std::uint8_t { none, input, result, undefined } origin = Origin::none;
    std::size_t index = 0;
  };
  Kept kept(const Tensor& tensor, const Tensors& inputs, const Tensors& results) const;
  Tensor zeros_of(std::size_t result) const;

  const std::string name_;
  std::vector<Edge> edges_;
  autograd::FunctionBackward backward_;
  autograd::FunctionContext context_;
  std::vector<Kept> kept_;
  std::vector<Edge> results_;  ///< without a node: what each looks like
  std::vector<Device> devices_;
  bool released_ = false;
};

}  // namespace dtrun::dtensor
