// What a tensor says and is told of its gradient.
#include <utility>

#include "autograd/engine.h"
#include "autograd/step_node.h"
#include "dtrun/base/error.h"
#include "dtrun/dtensor/autograd.h"
#include "dtrun/dtensor/ops.h"
#include "dtrun/tensor/ops.h"

namespace dtrun::dtensor {

using base::Error;
using base::ErrorCode;

namespace {

[[noreturn]] void refuse(std::string what, std::string why, std::string remedy = {}) {
  throw Error(ErrorCode::kInvalidArgument, std::move(what), std::move(why), std::move(remedy));
}

std::string named(const Tensor& tensor) {
  return std::string(tensors::dtype_short_name(tensor.dtype())) +
         tensors::shape_to_string(tensor.shape());
}

Tensor one_like(const Tensor& root) {
  LocalTensor one = tensors::ones(root.local().shape(), {root.dtype(), root.device()});
  if (!root.is_distributed()) return one;
  return Tensor(make_spec(root.device_mesh(), gradient_placements(root.placements()), root.shape(),
                          root.dtype(), root.spec().shard_order()),
                std::move(one));
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
  auto* const leaf = new Leaf;
  leaf->local = local();
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
    refuse("retain_grad() of a tensor without gradient", "", "requires_grad_()");
  if (is_leaf()) return;
  // The hook is the node's own, and ends with it.
  Node* const node = Graph::producer(*this).get();
  const std::uint32_t output = Graph::output(*this);
  node->hooks(output).push_back([node, output](const Tensor& gradient) {
    node->keep_gradient(output, gradient);
    return Tensor();
  });
}

void Tensor::set_grad(const Tensor& grad) const {
  Leaf* const leaf = Graph::leaf(*this);
  if (leaf == nullptr) refuse("set_grad of a tensor that keeps none", "", "requires_grad_()");
  if (grad.defined() && (grad.shape() != shape() || grad.dtype() != dtype())) {
    refuse("set_grad of " + named(grad) + " on a tensor of " + named(*this),
           "a gradient has the shape and the dtype of its tensor");
  }
  leaf->gradient = grad;
}

Tensor Tensor::detach() const {
  return is_distributed() ? Tensor(spec(), local()) : Tensor(local());
}

void Tensor::backward(BackwardOptions options) const {
  if (numel() != 1) {
    refuse("backward() of a tensor of " + named(*this),
           "without a gradient it takes a tensor with one element",
           "sum() or mean() it, or backward(gradient)");
  }
  backward(requires_grad() ? one_like(*this) : Tensor(), options);
}

void Tensor::backward(const Tensor& gradient, BackwardOptions options) const {
  if (!requires_grad()) {
    refuse("backward() of a tensor that no gradient is wanted of",
           Graph::is_on() ? "nothing that it was made of requires one" : "gradients are off here",
           "requires_grad_() on what is trained");
  }
  if (gradient.is_distributed() != is_distributed() && numel() != 1) {
    refuse("backward() of " + spec().to_string() + " with a gradient that is " +
               gradient.spec().to_string(),
           "both are distributed, or none is", "distribute_tensor() the gradient");
  }
  run_backward(*this, gradient, options);
}

void Tensor::register_hook(std::function<Tensor(const Tensor& gradient)> hook) const {
  if (!requires_grad())
    refuse("register_hook on a tensor without gradient", "", "requires_grad_()");
  Node* const node = Graph::producer(*this).get();
  node->hooks(Graph::output(*this)).push_back(std::move(hook));
}

void Tensor::register_post_accumulate_grad_hook(
    std::function<void(const Tensor& leaf)> hook) const {
  Leaf* const leaf = Graph::leaf(*this);
  if (leaf == nullptr) {
    refuse("register_post_accumulate_grad_hook on a tensor that is no leaf with a gradient", "",
           "requires_grad_(), or register_hook()");
  }
  leaf->post_accumulate_hooks.push_back(std::move(hook));
}

std::string Tensor::grad_fn() const {
  return is_leaf() ? "" : std::string(Graph::producer(*this)->name());
}

Tensor checkpoint(const std::function<Tensor(const Tensor&)>& f, const Tensor& x) {
  Tensor result;
  {
    const NoGrad no_grad;
    result = f(x.detach()).detach();
  }
  if (!Graph::is_on()) return result;
  // What f uses besides x may want gradients even if x does not: the way back begins at a stand-in.
  const Tensor input = x.requires_grad() ? x : x.detach().requires_grad_();
  return recorded("checkpoint", input, std::move(result),
                  [f, x = x.detach(), wanted = x.requires_grad()](const Tensor& gradient) {
                    const GradMode on(true);
                    const Tensor again = x.detach();
                    if (wanted) again.requires_grad_();
                    f(again).backward(gradient);
                    return wanted ? again.grad() : Tensor();
                  });
}

}  // namespace dtrun::dtensor
