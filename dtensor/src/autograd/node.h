// Node: an operation that a gradient flows back through, with edges to what made its inputs. Made
// while the operation runs, gone through by the engine (engine.h), kept alive by the tensors that
// it made. One thread's.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "dtrun/dtensor/tensor.h"

namespace dtrun::dtensor {

/// Where the gradient of one input goes, and what it must look like there.
struct Edge {
  base::Counted<Node> node;  ///< none: this input wants no gradient
  std::uint32_t output = 0;  ///< which of the node's
  DType dtype = DType::f32;
  Shape shape;
  Spec spec;

  static Edge to(const Tensor& input);
};

using GradientHook = std::function<Tensor(const Tensor& gradient)>;

class Node : public base::Count {
 public:
  virtual ~Node() = default;
  virtual std::string_view name() const = 0;
  /// The inputs' gradients, one per edge, from the outputs'; undefined ones are zeros.
  virtual Tensors backward(std::span<const Tensor> gradients) = 0;
  /// Whether backward takes a gradient as Partial where its output is Replicate: it only passes it
  /// on.
  virtual bool passes_partial_on() const { return false; }
  /// What backward needs is given back.
  virtual void release() = 0;
  virtual std::span<const Edge> edges() const = 0;

  std::uint64_t sequence() const { return sequence_; }
  std::vector<GradientHook>& hooks(std::uint32_t output);
  /// None where there are no hooks at all.
  const std::vector<GradientHook>* find_hooks(std::uint32_t output) const;
  /// retain_grad().
  void keep_gradient(std::uint32_t output, const Tensor& gradient);
  Tensor kept_gradient(std::uint32_t output) const;

 protected:
  explicit Node(std::uint64_t sequence) : sequence_(sequence) {}
  /// Rising in program order, per thread.
  static std::uint64_t next_sequence();
  std::uint64_t sequence_;

 private:
  friend class base::Counted<Node>;
  /// However long the chain is that goes with it, without recursion.
  static void destroy(Node* node) noexcept;
  std::vector<std::vector<GradientHook>> hooks_;
  Tensors kept_;
};

/// The end of the way: a tensor that no operation made, and its gradient.
class Leaf : public Node {
 public:
  Leaf() : Node(0) {}
  std::string_view name() const override { return "AccumulateGrad"; }
  Tensors backward(std::span<const Tensor> gradients) override;
  void release() override {}
  std::span<const Edge> edges() const override { return {}; }
  /// At its first use in a graph it takes its place in the order: when the engine comes to it, all
  /// that used it has been.
  void take_place() {
    if (sequence_ == 0) sequence_ = next_sequence();
  }
  void give_place_up() { sequence_ = 0; }

  Tensor gradient;
  std::vector<std::function<void(const Tensor&)>> post_accumulate_hooks;
  /// For them: the leaf itself, whose numbers do not keep this one alive.
  LocalTensor local;
  Spec spec;
};

/// Access to the place of a tensor in the graph.
class Graph {
 public:
  static const base::Counted<Node>& producer(const Tensor& tensor) {
    return tensor.body_->producer;
  }
  static std::uint32_t output(const Tensor& tensor) { return tensor.body_->output; }
  static Leaf* leaf(const Tensor& tensor);
  /// It shows another tensor's elements.
  static bool is_view(const Tensor& tensor) { return tensor.body_->is_view; }
  static void mark_view(const Tensor& tensor) { tensor.body_->is_view = true; }
  static void set_producer(const Tensor& tensor, base::Counted<Node> producer,
                           std::uint32_t output = 0) {
    tensor.body_->producer = std::move(producer);
    tensor.body_->output = output;
  }
  /// Operations are recorded now, in this thread.
  static bool is_on() { return on_; }
  static bool set_on(bool on) { return std::exchange(on_, on); }

 private:
  static thread_local bool on_;
};

}  // namespace dtrun::dtensor
