// StepNode: a node with one input, for what is not an operator, such as a change of placements.
#pragma once

#include <functional>
#include <string_view>
#include <utility>

#include "autograd/node.h"
#include "dispatch/op.h"

namespace dtrun::dtensor {

class StepNode : public Node {
 public:
  using Backward = std::function<Tensor(const Tensor& gradient)>;

  StepNode(std::string_view name, const Tensor& input, Backward backward,
           PartialGradient partial_gradient)
      : StepNode(name, Edge::to(input), std::move(backward), partial_gradient) {}
  StepNode(std::string_view name, Edge edge, Backward backward, PartialGradient partial_gradient)
      : Node(0),
        name_(name),
        edge_(std::move(edge)),
        backward_(std::move(backward)),
        partial_gradient_(partial_gradient) {
    sequence_ = next_sequence();
  }
  std::string_view name() const override { return name_; }
  Tensors backward(std::span<const Tensor> gradients) override;
  bool passes_partial_on() const override {
    return partial_gradient_ == PartialGradient::passed_on;
  }
  void release() override { backward_ = nullptr; }
  std::span<const Edge> edges() const override { return {&edge_, 1}; }

 private:
  const std::string_view name_;
  const Edge edge_;
  Backward backward_;
  const PartialGradient partial_gradient_;
};

/// Whether an operation on `input` would be recorded now.
inline bool wants_step(const Tensor& input) {
  return input.requires_grad() && Graph::is_on();
}

/// Makes the node of a step from `input`. Null: no gradient is wanted.
template <typename Backward>
base::Counted<Node> step_from(std::string_view name, const Tensor& input, Backward backward,
                              PartialGradient partial_gradient) {
  if (!wants_step(input)) return {};
  return base::Counted<Node>(new StepNode(name, input, std::move(backward), partial_gradient));
}

/// Records the step from `input` to `output` if a gradient is wanted.
template <typename Backward>
Tensor recorded(std::string_view name, const Tensor& input, Tensor output, Backward backward,
                PartialGradient partial_gradient = PartialGradient::reduced) {
  auto step = step_from(name, input, std::move(backward), partial_gradient);
  if (step.get() == nullptr) return output;
  Graph::set_producer(output, std::move(step));
  if (input.local().storage() == output.local().storage()) Graph::mark_view(output, input);
  return output;
}

}  // namespace dtrun::dtensor
