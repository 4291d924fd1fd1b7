#include "autograd/node.h"

#include <utility>

#include "dtrun/dtensor/ops.h"

namespace dtrun::dtensor {

thread_local bool Graph::on_ = true;

Edge Edge::to(const Tensor& input) {
  if (!input.requires_grad()) return {};
  if (Leaf* const leaf = Graph::leaf(input)) leaf->take_place();
  return {Graph::producer(input), Graph::output(input), input.dtype(), input.shape(), input.spec()};
}

std::uint64_t Node::next_sequence() {
  static thread_local std::uint64_t last = 0;
  return ++last;
}

void Node::destroy(Node* node) noexcept {
  static thread_local std::vector<Node*> waiting;
  static thread_local bool draining = false;
  waiting.push_back(node);
  if (draining) return;
  draining = true;
  while (!waiting.empty()) {
    Node* const next = waiting.back();
    waiting.pop_back();
    delete next;
  }
  draining = false;
}

std::vector<GradientHook>& Node::hooks(std::uint32_t output) {
  if (hooks_.size() <= output) hooks_.resize(output + 1);
  return hooks_[output];
}

const std::vector<GradientHook>* Node::find_hooks(std::uint32_t output) const {
  return output < hooks_.size() && !hooks_[output].empty() ? &hooks_[output] : nullptr;
}

void Node::keep_gradient(std::uint32_t output, const Tensor& gradient) {
  if (kept_.size() <= output) kept_.resize(output + 1);
  kept_[output] = gradient;
}

Tensor Node::kept_gradient(std::uint32_t output) const {
  return output < kept_.size() ? kept_[output] : Tensor();
}

Leaf* Graph::leaf(const Tensor& tensor) {
  return dynamic_cast<Leaf*>(producer(tensor).get());
}

Tensors Leaf::backward(std::span<const Tensor> gradients) {
  give_place_up();
  // The sum is the leaf's own: nobody else's later write may show in it.
  gradient = gradient.defined() ? add(gradient, gradients[0]) : gradients[0];
  if (post_accumulate_hooks.empty()) return {};
  const Tensor self = spec ? Tensor(spec, local) : Tensor(local);
  Graph::set_producer(self, base::Counted<Node>::share(this));
  for (const auto& hook : post_accumulate_hooks) hook(self);
  return {};
}

}  // namespace dtrun::dtensor
