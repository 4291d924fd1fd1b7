// Tensor's functions about its gradient.
#include <utility>

#include "autograd/call_text.h"
#include "autograd/engine.h"
#include "autograd/step_node.h"
#include "dtrun/base/error.h"
#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/tensor/ops.h"

namespace dtrun::dtensor {

using base::Error;
using base::ErrorCode;

namespace {

[[noreturn]] void refuse(std::string what, std::string why, std::string remedy) {
  throw Error(ErrorCode::kInvalidArgument, std::move(what), std::move(why), std::move(remedy));
}

// Of a Partial root each term gets the whole gradient, because the derivative of a sum by each of
// its terms is 1. So the gradient is replicated there.
Tensor one_like(const Tensor& root) {
  LocalTensor one = tensors::ones(root.local().shape(), {root.dtype(), root.device()});
  if (!root.is_distributed()) return one;
  return Tensor(make_spec(root.device_mesh(), without_partials(root.placements()), root.shape(),
                          root.dtype(), root.spec().shard_order()),
                std::move(one));
}

void check_one_element(const char* call, const Tensor& root) {
  if (root.numel() == 1) return;
  refuse(std::string(call) + " of a tensor of " + tensor_text(root),
         "without a gradient it takes a tensor with one element",
         "sum() or mean() it, or give the gradient");
}

void check_root(const Tensor& root, const Tensor& gradient) {
  if (!root.requires_grad()) {
    refuse("backward() of a tensor that no gradient is wanted of",
           Graph::is_on() ? "nothing that it was made of requires one" : "gradients are off here",
           "requires_grad_() on what is trained");
  }
  if (!gradient.defined()) {
    refuse("backward() with an undefined gradient", "it goes back from its numbers",
           "leave it out for a single number");
  }
  // A single number is the same on every rank, so it may stay plain for a distributed root.
  const bool local_number = !gradient.is_distributed() && gradient.numel() == 1;
  if (gradient.is_distributed() != root.is_distributed() && !local_number) {
    refuse("backward() of " + root.spec().to_string() + " with a gradient that is " +
               gradient.spec().to_string(),
           "both are distributed, or none is", "distribute_tensor() the gradient");
  }
}

}  // namespace

GradMode::GradMode(bool on) : before_(Graph::set_on(on)) {}
GradMode::~GradMode() {
  Graph::set_on(before_);
}
bool is_grad_enabled() {
  return Graph::is_on();
}

bool Tensor::is_leaf() const {
  return !requires_grad() || Graph::leaf(*this) != nullptr;
}

const Tensor& Tensor::requires_grad_(bool requires_grad) const {
  if (requires_grad == this->requires_grad()) return *this;
  if (!is_leaf()) {
    refuse("requires_grad_(false) of a tensor that " + grad_fn() + " has made",
           "it is part of a graph", "detach()");
  }
  if (!requires_grad) {
    Graph::set_producer(*this, nullptr);
    return *this;
  }
  if (!tensors::is_floating_point(dtype())) {
    refuse("requires_grad_() of a tensor of " + std::string(tensors::dtype_name(dtype())),
           "only floating point numbers have gradients", "to(DType::f32)");
  }
  // The leaf keeps the numbers, not the tensor: the tensor owns the leaf, and would own itself.
  auto* const leaf = new Leaf;
  leaf->local = body().local;
  leaf->spec = spec();
  Graph::set_producer(*this, base::Counted<Node>(leaf));
  return *this;
}

Tensor Tensor::grad() const {
  if (!requires_grad()) return {};
  const Leaf* const leaf = Graph::leaf(*this);
  return leaf != nullptr ? leaf->gradient
                         : Graph::producer(*this)->kept_gradient(Graph::output(*this));
}

void Tensor::retain_grad() const {
  if (!requires_grad())
    refuse("retain_grad() of a tensor without gradient", "nothing that it was made of requires one",
           "requires_grad_()");
  if (is_leaf()) return;
  Graph::producer(*this)->ask_to_keep(Graph::output(*this));
}

void Tensor::set_grad(const Tensor& grad) const {
  Leaf* const leaf = Graph::leaf(*this);
  if (leaf == nullptr)
    refuse("set_grad of a tensor that keeps none", "only leaves that require a gradient do",
           "requires_grad_()");
  if (grad.defined() && (grad.shape() != shape() || grad.dtype() != dtype())) {
    refuse("set_grad of " + tensor_text(grad) + " on a tensor of " + tensor_text(*this),
           "a gradient has the shape and the dtype of its tensor", "reshape() it, and to()");
  }
  if (grad.defined() && grad.is_distributed() != is_distributed()) {
    refuse("set_grad of " + grad.spec().to_string() + " on " + spec().to_string(),
           "both are distributed, or none is", "distribute_tensor() the gradient");
  }
  leaf->gradient = grad;
}

void Tensor::set_data(const Tensor& data) const {
  if (!data.defined())
    refuse("set_data with an undefined tensor", "it has no numbers", "ask defined() first");
  if (!is_leaf()) {
    refuse("set_data on what " + grad_fn() + " has made", "its numbers are part of a graph",
           "detach()");
  }
  Leaf* const leaf = Graph::leaf(*this);
  if (leaf != nullptr && !tensors::is_floating_point(data.dtype())) {
    refuse("set_data of " + tensor_text(data) + " on a tensor that a gradient is wanted of",
           "only floating point numbers have gradients", "requires_grad_(false)");
  }
  if (leaf != nullptr && leaf->gradient.defined() && !leaf->fits(data)) {
    refuse("set_data of " + tensor_text(data) + " on a tensor of " + tensor_text(*this) +
               " with a gradient",
           "the gradient would not fit it any more", "set_grad({}) first");
  }
  body();
  body_->local = data.local();
  body_->spec = data.spec();
  body_->is_copy = data.body().is_copy;
  body_->forget_moves();
  if (leaf == nullptr) return;
  // The hooks of the leaf get what it keeps.
  leaf->local = data.local();
  leaf->spec = data.spec();
}

Tensor Tensor::detach() const {
  if (!is_distributed()) return local();
  Tensor detached(spec(), local());
  if (Graph::is_copy(*this)) Graph::mark_copy(detached);
  return detached;
}

void Tensor::backward(BackwardOptions options) const {
  check_one_element("backward()", *this);
  backward(one_like(*this), options);
}

void Tensor::backward(const Tensor& gradient, BackwardOptions options) const {
  check_root(*this, gradient);
  run_backward({*this}, {gradient}, options);
}

Tensors grad(const Tensors& outputs, const Tensors& inputs, const Tensors& grad_outputs,
             BackwardOptions options) {
  if (!grad_outputs.empty() && grad_outputs.size() != outputs.size()) {
    refuse("grad() of " + std::to_string(outputs.size()) + " outputs with " +
               std::to_string(grad_outputs.size()) + " gradients",
           "each output has one, or none is given", "as many as outputs");
  }
  if (outputs.empty() || inputs.empty()) {
    refuse(outputs.empty() ? "grad() of no outputs" : "grad() with regard to no inputs",
           "it would have nothing to compute", "give at least one of both");
  }
  std::vector<Edge> wanted;
  for (const Tensor& input : inputs) {
    if (!input.requires_grad()) {
      refuse("grad() with regard to a tensor of " + tensor_text(input) + " that requires none",
             "nothing goes back to it", "requires_grad_() before it is used");
    }
    wanted.push_back(Edge::to(input));
  }
  Tensors gradients;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const bool given = !grad_outputs.empty() && grad_outputs[i].defined();
    if (!given) check_one_element("grad()", outputs[i]);
    gradients.push_back(given ? grad_outputs[i] : one_like(outputs[i]));
    check_root(outputs[i], gradients.back());
  }
  return run_backward(outputs, gradients, options, wanted);
}

void Tensor::register_hook(std::function<Tensor(const Tensor& gradient)> hook) const {
  if (!requires_grad())
    refuse("register_hook on a tensor without gradient", "the hook would never be called",
           "requires_grad_()");
  Node* const node = Graph::producer(*this).get();
  node->hooks(Graph::output(*this)).push_back(std::move(hook));
}

void Tensor::register_post_accumulate_grad_hook(
    std::function<void(const Tensor& leaf)> hook) const {
  Leaf* const leaf = Graph::leaf(*this);
  if (leaf == nullptr) {
    refuse("register_post_accumulate_grad_hook on a tensor that is no leaf with a gradient",
           "only a leaf adds up what comes to it", "requires_grad_(), or register_hook()");
  }
  leaf->post_accumulate_hooks.push_back(std::move(hook));
}

std::string Tensor::grad_fn() const {
  return is_leaf() ? "" : std::string(Graph::producer(*this)->name());
}

}  // namespace dtrun::dtensor
