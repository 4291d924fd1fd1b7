// Node: an operation that a gradient flows back through, with edges to what made its inputs. Made
// while the operation runs, gone through by the engine (engine.h), kept alive by the tensors that
// it made. One thread's.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "dtrun/dtensor/autograd/tensor.h"
#include "move/section.h"

namespace dtrun::dtensor {

/// Where the gradient of one input goes, and what it must look like there.
struct Edge {
  base::Counted<Node> node;  ///< none: this input wants no gradient
  std::uint32_t output = 0;  ///< which of the node's
  // Of the input, whether it wants a gradient or not.
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
  /// Whether backward adds to leaves that no edge leads to.
  virtual bool fills_other_leaves() const { return false; }
  /// What backward needs is given back.
  virtual void release() = 0;
  virtual std::span<const Edge> edges() const = 0;

  std::uint64_t sequence() const { return sequence_; }
  std::vector<GradientHook>& hooks(std::uint32_t output);
  /// None where there are no hooks at all.
  const std::vector<GradientHook>* find_hooks(std::uint32_t output) const;
  /// retain_grad().
  void ask_to_keep(std::uint32_t output);
  bool keeps_gradient(std::uint32_t output) const {
    return output < kept_.size() && kept_[output].wanted;
  }
  /// Another node makes the tensor now.
  void stop_keeping(std::uint32_t output) { kept_[output] = {}; }
  void keep_gradient(std::uint32_t output, const Tensor& gradient);
  Tensor kept_gradient(std::uint32_t output) const;

  /// Where it was made, or, of a leaf, used last. None as a rule.
  Section* section() const { return section_.get(); }
  void enter_section(Section* section) { section_ = base::Counted<Section>::share(section); }

 protected:
  explicit Node(std::uint64_t sequence) : sequence_(sequence) {
    if (Section* const section = StandingSection::innermost(); section != nullptr) [[unlikely]]
      enter_section(section);
  }
  /// Rising in program order, per thread.
  static std::uint64_t next_sequence();
  std::uint64_t sequence_;

 private:
  friend class base::Counted<Node>;
  /// However long the chain is that goes with it, without recursion.
  static void destroy(Node* node) noexcept;
  struct Kept {
    bool wanted = false;
    Tensor gradient;
  };

  std::vector<std::vector<GradientHook>> hooks_;
  std::vector<Kept> kept_;
  base::Counted<Section> section_;
  Node* next_to_go_ = nullptr;
};

/// For a node whose needs were given back. @throws Error kInvalidArgument
[[noreturn]] void refuse_second_backward(std::string_view node);

/// The end of the way: a tensor that no operation made, and its gradient. Once all has come to it,
/// it comes before any operation: the earlier it is done, the more of backward is left beside which
/// a hook may communicate.
class Leaf : public Node {
 public:
  Leaf() : Node(std::numeric_limits<std::uint64_t>::max()) {}
  std::string_view name() const override { return "AccumulateGrad"; }
  Tensors backward(std::span<const Tensor> gradients) override;
  void release() override {}
  std::span<const Edge> edges() const override { return {}; }

  /// Whether the gradient that is there can be that of those numbers.
  bool fits(const Tensor& numbers) const;

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
    return tensor.body().producer;
  }
  static std::uint32_t output(const Tensor& tensor) { return tensor.body().output; }
  static Leaf* leaf(const Tensor& tensor);
  /// It shows another tensor's elements.
  static bool is_view(const Tensor& tensor) { return tensor.body().view != Tensor::View::none; }
  static void mark_view(const Tensor& tensor, const Tensor& base);
  /// @throws Error for a view of what an operation made and another has written over since
  static void check_not_stale(const Tensor& tensor);
  /// Nobody else has its elements.
  static bool is_sole_owner(const Tensor& tensor) {
    return tensor.body_->owners() == 1 && tensor.local().storage()->owners() == 1;
  }
  static void set_producer(const Tensor& tensor, base::Counted<Node> producer,
                           std::uint32_t output = 0) {
    tensor.body_->producer = std::move(producer);
    tensor.body_->output = output;
  }
  /// Each becomes what the other was: numbers, layout and place in the graph. Handles stay.
  static void exchange(const Tensor& a, const Tensor& b);
  /// Operations are recorded now, in this thread.
  static bool is_on() { return on_; }
  static bool set_on(bool on) { return std::exchange(on_, on); }

 private:
  static thread_local bool on_;
};

}  // namespace dtrun::dtensor
