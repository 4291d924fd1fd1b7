// OpNode: the node of one operator call: the operator, its attributes, and what its gradient saves
// of the operands.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "autograd/node.h"
#include "dispatch/op.h"
#include "dispatch/result_wish.h"

namespace dtrun::dtensor {

/// A saved operand: its elements, and the version that they had.
struct Saved {
  LocalTensor local;
  Spec spec;
  std::uint32_t version = 0;

  static Saved of(const Tensor& tensor) {
    return {tensor.local(), tensor.spec(), tensor.local().storage()->version()};
  }
};

/// @param edge what made it; none: nothing. @throws Error kInvalidArgument where it was written to
/// since it was saved
Tensor restored(std::string_view node, const Saved& saved, const Edge& edge);

/// The part of OpNode that does not depend on its types.
class OpNodeBase : public Node {
 public:
  std::span<const Edge> edges() const override { return edges_; }
  std::string_view name() const override { return name_; }
  void release() override;

  /// @throws Error kInvalidArgument where it was released, or changed in place since
  Tensor input(std::size_t which) const;
  Tensor output() const;
  int wanted_inputs() const;
  bool needs(std::size_t which) const { return static_cast<bool>(edges_[which].node); }
  /// Where the gradient of an input will go, as far as that is known.
  std::optional<ResultWish> wish(std::size_t which) const;

  /// Saves `tensor` instead of an input that it saves.
  void save_instead(std::size_t which, const Tensor& tensor) { saved_[which] = Saved::of(tensor); }

 protected:
  OpNodeBase(std::string_view name, std::span<const Tensor* const> inputs, Saves saves);
  void check_not_released() const;
  void save_output(const Tensor& output) { output_ = Saved::of(output); }

 private:
  std::string_view name_;
  Saves saves_;
  bool released_ = false;
  std::vector<Edge> edges_;
  std::vector<Saved> saved_;  ///< one per input; undefined where it was not wanted
  Saved output_;
};

/// What a gradient is computed from.
template <typename A, typename V>
class Context {
 public:
  Context(const OpNodeBase& node, const Tensor& gradient, const A& attributes, const V& numbers)
      : node_(node), gradient_(gradient), attributes_(attributes), numbers_(numbers) {}

  const Tensor& grad() const { return gradient_; }
  Tensor input(std::size_t which) const { return node_.input(which); }
  Tensor output() const { return node_.output(); }
  /// Of the whole tensor.
  const Shape& shape(std::size_t which) const { return node_.edges()[which].shape; }
  DType dtype(std::size_t which) const { return node_.edges()[which].dtype; }
  bool needs(std::size_t which) const { return node_.needs(which); }
  /// A gradient of zeros for that input. Sends nothing.
  Tensor zeros(std::size_t which) const { return node_.edges()[which].zeros(gradient_.device()); }
  std::size_t inputs() const { return node_.edges().size(); }
  std::optional<ResultWish> wish(std::size_t which) const { return node_.wish(which); }
  const A& attributes() const { return attributes_; }
  const V& numbers() const { return numbers_; }

 private:
  const OpNodeBase& node_;
  const Tensor& gradient_;
  const A& attributes_;
  const V& numbers_;
};

template <typename A, typename V>
class OpNode : public OpNodeBase {
 public:
  OpNode(const Op<A, V>& op, std::span<const Tensor* const> inputs, const Tensor& output,
         const A& attributes, const V& numbers)
      : OpNodeBase(op.name, inputs, op.saves), op_(op), attributes_(attributes), numbers_(numbers) {
    if (op.saves.output) save_output(output);
  }
  Tensors backward(std::span<const Tensor> gradients) override {
    check_not_released();
    return op_.backward(Context<A, V>(*this, gradients[0], attributes_, numbers_));
  }
  bool passes_partial_on() const override {
    // With two inputs the Partial gradient would be reduced twice.
    return op_.partial_gradient == PartialGradient::passed_on && wanted_inputs() == 1;
  }

 private:
  const Op<A, V>& op_;
  const A attributes_;
  const V numbers_;
};

/// An input as the kernel received it.
struct Brought {
  std::size_t input;
  Tensor tensor;
};

/// @param brought saved instead of inputs that lay otherwise
template <typename A, typename V>
void record(const Op<A, V>& op, std::span<const Tensor* const> inputs, const Tensor& output,
            const A& attributes, const V& numbers, std::span<const Brought> brought = {}) {
  auto* const node = new OpNode<A, V>(op, inputs, output, attributes, numbers);
  for (const Brought& input : brought) node->save_instead(input.input, input.tensor);
  Graph::set_producer(output, base::Counted<Node>(node));
  for (const Tensor* input : inputs) {
    if (input->local().storage() == output.local().storage()) Graph::mark_view(output, *input);
  }
}

}  // namespace dtrun::dtensor
