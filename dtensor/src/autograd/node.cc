#include "autograd/node.h"

#include <utility>

#include "autograd/rehearsed_graph.h"
#include "dtrun/base/error.h"
#include "dtrun/tensor/ops.h"
#include "move/move_observer.h"

namespace dtrun::dtensor {

constinit thread_local bool Graph::on_ = true;

Edge Edge::to(const Tensor& input) {
  if (input.requires_grad()) Graph::check_not_stale(input);
  if (Section* const section = StandingSection::innermost(); section != nullptr) [[unlikely]] {
    if (Leaf* const leaf = Graph::leaf(input); leaf != nullptr) leaf->enter_section(section);
  }
  return {Graph::producer(input), Graph::output(input), input.dtype(), input.shape(), input.spec()};
}

Tensor Edge::zeros(Device device) const {
  const tensors::TensorOptions options{dtype, device};
  if (!spec) return tensors::zeros(shape, options);
  Spec whole =
      make_spec(spec.mesh(), without_partials(spec.placements()), shape, dtype, spec.shard_order());
  LocalTensor local = tensors::zeros(whole.local_box().shape, options);
  return Tensor(std::move(whole), std::move(local));
}

std::uint64_t Node::next_sequence() {
  static thread_local std::uint64_t last = 0;
  return ++last;
}

// Plain thread-local pointers only: a tensor may be destroyed at program exit, after thread-local
// objects are gone.
void Node::destroy(Node* node) noexcept {
  static thread_local Node* waiting = nullptr;
  static thread_local bool draining = false;
  node->next_to_go_ = std::exchange(waiting, node);
  if (draining) return;
  draining = true;
  while (waiting != nullptr) delete std::exchange(waiting, waiting->next_to_go_);
  draining = false;
}

void refuse_second_backward(std::string_view node) {
  throw base::Error(base::ErrorCode::kInvalidArgument,
                    "backward goes through " + std::string(node) + " a second time",
                    "what it kept of the forward was freed after the first backward",
                    "backward({.retain_graph = true}) the first time");
}

std::vector<GradientHook>& Node::hooks(std::uint32_t output) {
  if (hooks_.size() <= output) hooks_.resize(output + 1);
  return hooks_[output];
}

const std::vector<GradientHook>* Node::find_hooks(std::uint32_t output) const {
  return output < hooks_.size() && !hooks_[output].empty() ? &hooks_[output] : nullptr;
}

void Node::ask_to_keep(std::uint32_t output) {
  if (kept_.size() <= output) kept_.resize(output + 1);
  kept_[output].wanted = true;
}

void Node::keep_gradient(std::uint32_t output, const Tensor& gradient) {
  Tensor& kept = kept_[output].gradient;
  kept = kept.defined() ? kept.add(gradient) : gradient.clone();
}

Tensor Node::kept_gradient(std::uint32_t output) const {
  return output < kept_.size() ? kept_[output].gradient : Tensor();
}

void Node::set_kept_gradient(std::uint32_t output, Tensor gradient) {
  kept_[output].gradient = std::move(gradient);
}

Leaf* Graph::leaf(const Tensor& tensor) {
  return dynamic_cast<Leaf*>(producer(tensor).get());
}

void Graph::mark_view(const Tensor& tensor, const Tensor& base) {
  const bool of_leaf = base.body_->view == Tensor::View::of_leaf || leaf(base) != nullptr;
  tensor.body_->view = of_leaf ? Tensor::View::of_leaf : Tensor::View::of_result;
  tensor.body_->version = tensor.local().storage()->version();
}

void Graph::exchange(const Tensor& a, const Tensor& b) {
  Tensor::Body& one = *a.body_;
  Tensor::Body& other = *b.body_;
  std::swap(one.local, other.local);
  std::swap(one.spec, other.spec);
  std::swap(one.producer, other.producer);
  std::swap(one.output, other.output);
  std::swap(one.view, other.view);
  std::swap(one.is_copy, other.is_copy);
  std::swap(one.version, other.version);
}

// Writes to a leaf happen outside the graph and on purpose, so views of leaves are not checked.
void Graph::check_not_stale(const Tensor& tensor) {
  if (tensor.body_->view != Tensor::View::of_result) return;
  if (tensor.body_->version == tensor.local().storage()->version()) return;
  throw base::Error(base::ErrorCode::kInvalidArgument,
                    "a view of shape " + tensors::shape_to_string(tensor.shape()) +
                        " is used whose tensor was changed in place",
                    "its gradient would be that of the numbers before",
                    "make the view after the change, or clone() it before");
}

namespace {

// The device index must be equal; the placements need not be.
bool are_alike(const Tensor& gradient, const Tensor& numbers) {
  return gradient.shape() == numbers.shape() && gradient.dtype() == numbers.dtype() &&
         gradient.device() == numbers.device() &&
         gradient.is_distributed() == numbers.is_distributed() &&
         (!gradient.is_distributed() || gradient.device_mesh() == numbers.device_mesh());
}

}  // namespace

bool Leaf::fits(const Tensor& numbers) const {
  return are_alike(gradient, numbers);
}

Tensors Leaf::backward(std::span<const Tensor> gradients) {
  const Tensor& whole = gradients[0];
  if (whole.dtype() != local.dtype() || whole.device() != local.device() ||
      whole.is_distributed() != static_cast<bool>(spec)) {
    throw base::Error(base::ErrorCode::kInvalidArgument,
                      "a gradient came for a tensor of shape " +
                          tensors::shape_to_string(local.shape()) +
                          " that set_data() has changed since",
                      "the graph still belongs to what the tensor was before",
                      "backward() before a module is moved or distributed, or the forward again");
  }
  const bool is_rehearsed = MoveObserver::rehearsing();
  if (is_rehearsed) RehearsedGraph::note_gradient(*this);
  if (gradient.defined()) {
    gradient = gradient.add(whole);
  } else {
    // The gradient must be the leaf's own: a write to another tensor must not change it.
    const bool own = Graph::is_sole_owner(whole) && whole.local().is_contiguous();
    gradient = own ? whole : whole.clone();
  }
  if (post_accumulate_hooks.empty() || is_rehearsed) return {};
  const Tensor self = spec ? Tensor(spec, local) : Tensor(local);
  Graph::set_producer(self, base::Counted<Node>::share(this));
  // A copy: a hook may register another one.
  const auto hooks = post_accumulate_hooks;
  for (const auto& hook : hooks) hook(self);
  return {};
}

}  // namespace dtrun::dtensor
