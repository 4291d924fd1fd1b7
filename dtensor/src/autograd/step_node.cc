#include "autograd/step_node.h"

#include "autograd/call_text.h"

namespace dtrun::dtensor {

Tensors StepNode::backward(std::span<const Tensor> gradients) {
  if (!backward_) refuse_second_backward(call_text(*this));
  return {backward_(gradients[0])};
}

}  // namespace dtrun::dtensor
