#include "autograd/step_node.h"

namespace dtrun::dtensor {

Tensors StepNode::backward(std::span<const Tensor> gradients) {
  if (!backward_) refuse_second_backward(name_);
  return {backward_(gradients[0])};
}

}  // namespace dtrun::dtensor
