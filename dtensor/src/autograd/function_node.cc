#include "autograd/function_node.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "autograd/call_text.h"
#include "dtrun/base/error.h"
#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/tensor/ops.h"

namespace dtrun::dtensor {
namespace {

using base::Error;
using base::ErrorCode;

/// "CubeBackward" for a struct Cube in any namespace.
std::string node_name(const std::type_info& function) {
  const std::unique_ptr<char, decltype(&std::free)> whole(
      abi::__cxa_demangle(function.name(), nullptr, nullptr, nullptr), &std::free);
  std::string name = whole ? whole.get() : function.name();
  const std::size_t scope = name.rfind("::");
  if (scope != std::string::npos) name.erase(0, scope + 2);
  return name + "Backward";
}

std::size_t position(const Tensors& tensors, const Tensor& tensor) {
  const auto found =
      std::ranges::find_if(tensors, [&](const Tensor& other) { return same(other, tensor); });
  return static_cast<std::size_t>(found - tensors.begin());
}

std::vector<std::uint32_t> versions_of(const Tensors& tensors) {
  std::vector<std::uint32_t> versions;
  for (const Tensor& tensor : tensors) {
    versions.push_back(tensor.defined() ? tensor.local().storage()->version() : 0);
  }
  return versions;
}

[[noreturn]] void refuse_function(std::string_view node, std::string what, std::string remedy) {
  throw Error(ErrorCode::kInvalidArgument, std::string(node) + ": " + std::move(what), "",
              std::move(remedy));
}

}  // namespace

FunctionNode::FunctionNode(std::string name, const Tensors& inputs,
                           autograd::FunctionBackward backward)
    : Node(next_sequence()), name_(std::move(name)), backward_(std::move(backward)) {
  for (const Tensor& input : inputs) edges_.push_back(input.defined() ? Edge::to(input) : Edge{});
}

void FunctionNode::begin(autograd::FunctionContext& context) const {
  for (const Edge& edge : edges_) context.needs_.push_back(edge.node ? 1 : 0);
}

FunctionNode::Kept FunctionNode::kept(const Tensor& tensor, const Tensors& inputs,
                                      const Tensors& results) const {
  using Origin = Kept::Origin;
  if (!tensor.defined()) return {{}, Origin::undefined, 0};
  const std::size_t input = position(inputs, tensor), result = position(results, tensor);
  if (input < inputs.size()) return {Saved::of(tensor), Origin::input, input};
  if (result < results.size()) return {Saved::of(tensor), Origin::result, result};
  return {Saved::of(tensor), Origin::none, 0};
}

Tensors FunctionNode::finish(const base::Counted<FunctionNode>& node,
                             autograd::FunctionContext context, const Tensors& inputs,
                             const Tensors& results) {
  FunctionNode& self = *node;
  Tensors made;
  for (const Tensor& tensor : context.saved_) {
    self.kept_.push_back(self.kept(tensor, inputs, results));
  }
  for (std::size_t i = 0; i < results.size(); ++i) {
    const Tensor& result = results[i];
    if (!result.defined()) refuse_function(self.name_, "forward gave an undefined result", "");
    self.results_.push_back({nullptr, 0, result.dtype(), result.shape(), result.spec()});
    self.devices_.push_back(result.device());
    // A new handle: forward may return an input, one tensor twice, or a tensor of another graph.
    made.push_back(result.detach());
    const bool marked =
        position(context.non_differentiable_, result) < context.non_differentiable_.size();
    if (marked || !tensors::is_floating_point(result.dtype())) continue;
    Graph::set_producer(made.back(), base::Counted<Node>::share(node.get()),
                        static_cast<std::uint32_t>(i));
    for (const Tensor& input : inputs) {
      if (input.defined() && input.local().storage() == result.local().storage()) {
        Graph::mark_view(made.back(), input);
      }
    }
  }
  // Saved tensors move to kept_, which release() frees.
  context.saved_.clear();
  context.non_differentiable_.clear();
  self.context_ = std::move(context);
  self.context_.node_ = &self;
  return made;
}

Tensor FunctionNode::zeros_of(std::size_t result) const {
  return results_[result].zeros(devices_[result]);
}

Tensors FunctionNode::backward(std::span<const Tensor> gradients) {
  Tensors all(gradients.begin(), gradients.end());
  all.resize(results_.size());
  for (std::size_t i = 0; i < all.size() && context_.materializes_; ++i) {
    if (!all[i].defined()) all[i] = zeros_of(i);
  }
  Tensors back = backward_(context_, all);
  if (back.size() == edges_.size()) return back;
  refuse_function(name_,
                  "backward gave " + std::to_string(back.size()) + " gradients for " +
                      std::to_string(edges_.size()) + " tensors among the arguments",
                  "an undefined Tensor for each that gets none");
}

void FunctionNode::release() {
  released_ = !kept_.empty();
  kept_.clear();
}

Tensors FunctionNode::saved_tensors() const {
  if (released_) refuse_second_backward(call_text(*this));
  Tensors tensors;
  for (const Kept& one : kept_) {
    Edge way;
    if (one.origin == Kept::Origin::input) way = edges_[one.index];
    if (one.origin == Kept::Origin::result) {
      way.node = base::Counted<Node>::share(const_cast<FunctionNode*>(this));
      way.output = static_cast<std::uint32_t>(one.index);
    }
    tensors.push_back(one.origin == Kept::Origin::undefined ? Tensor()
                                                            : restored(name_, one.saved, way));
  }
  return tensors;
}

namespace autograd {

void FunctionContext::save_for_backward(const Tensors& tensors) {
  if (node_ != nullptr) refuse_function(node_->name(), "save_for_backward in backward", "");
  saved_ = tensors;
}

Tensors FunctionContext::saved_tensors() const {
  return node_ != nullptr ? node_->saved_tensors() : saved_;
}

void FunctionContext::mark_non_differentiable(const Tensors& results) {
  non_differentiable_ = results;
}

Tensors apply_function(const std::type_info& function, const Tensors& inputs,
                       const FunctionForward& forward, FunctionBackward backward) {
  const bool wanted = Graph::is_on() && std::ranges::any_of(inputs, [](const Tensor& input) {
                        return input.defined() && input.requires_grad();
                      });
  FunctionContext context;
  if (!wanted) {
    const NoGrad no_grad;
    return forward(context);
  }
  const base::Counted<FunctionNode> node(
      new FunctionNode(node_name(function), inputs, std::move(backward)));
  node->begin(context);
  const std::vector<std::uint32_t> versions = versions_of(inputs);
  Tensors results;
  {
    const NoGrad no_grad;
    results = forward(context);
  }
  if (versions_of(inputs) != versions) {
    refuse_function(node->name(), "forward has changed an input in place",
                    "clone() it before, and give the clone back");
  }
  return FunctionNode::finish(node, std::move(context), inputs, results);
}

}  // namespace autograd
}  // namespace dtrun::dtensor
