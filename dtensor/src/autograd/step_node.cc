#include "autograd/step_node.h"

#include "dtrun/base/error.h"

namespace dtrun::dtensor {

void refuse_second_backward(std::string_view node) {
  throw base::Error(base::ErrorCode::kInvalidArgument,
                    "backward goes through " + std::string(node) + " a second time",
                    "what it kept of the forward was given back after the first",
                    "backward({.retain_graph = true}) the first time");
}

Tensors StepNode::backward(std::span<const Tensor> gradients) {
  if (!backward_) refuse_second_backward(name_);
  return {backward_(gradients[0])};
}

}  // namespace dtrun::dtensor
