// Node: a recorded operation, with edges to the nodes that made its inputs. It is made when the
// operation runs, visited by the engine (engine.h), and kept alive by the tensors that it made.
// Used by one thread.
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

/// Where the gradient of one input goes, and the shape, dtype and spec that it must have.
struct Edge {
  base::Counted<Node> node;  ///< none: this input wants no gradient
  std::uint32_t output = 0;  ///< which of the node's
  // These describe the input, also where it wants no gradient.
  DType dtype = DType::f32;
  Shape shape;
  Spec spec;

  static Edge to(const Tensor& input);
  /// A gradient of zeros: laid out as the input, Replicate where that is Partial. Sends nothing.
  Tensor zeros(Device device) const;
};

using GradientHook = std::function<Tensor(const Tensor& gradient)>;

class Node : public base::Count {
 public:
  virtual ~Node() = default;
  virtual std::string_view name() const = 0;
  /// Computes the gradients of the inputs, one per edge, from those of the outputs. An undefined
  /// gradient means zeros.
  virtual Tensors backward(std::span<const Tensor> gradients) = 0;
  /// Whether backward accepts a Partial gradient for a Replicate output, because it only passes it
  /// on.
  virtual bool passes_partial_on() const { return false; }
  /// Whether backward fills leaves that no edge leads to, so that grad() cannot go through it.
  virtual bool fills_other_leaves() const { return false; }
  /// Frees what backward needs.
  virtual void release() = 0;
  virtual std::span<const Edge> edges() const = 0;

  std::uint64_t sequence() const { return sequence_; }
  std::vector<GradientHook>& hooks(std::uint32_t output);
  /// Null where the output has no hooks.
  const std::vector<GradientHook>* find_hooks(std::uint32_t output) const;
  /// retain_grad().
  void ask_to_keep(std::uint32_t output);
  bool keeps_gradient(std::uint32_t output) const {
    return output < kept_.size() && kept_[output].wanted;
  }
  /// For a tensor that another node makes from now on.
  void stop_keeping(std::uint32_t output) { kept_[output] = {}; }
  void keep_gradient(std::uint32_t output, const Tensor& gradient);
  Tensor kept_gradient(std::uint32_t output) const;
  void set_kept_gradient(std::uint32_t output, Tensor gradient);

  /// The section in which the node was made; of a leaf, in which it was last used. Usually null.
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
  /// Without recursion: a chain of nodes that ends with this one may be long.
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

/// For a node that has been released. @throws Error kInvalidArgument
[[noreturn]] void refuse_second_backward(std::string_view node);

/// Leaf: a tensor that no operation made, and its gradient. When its gradient is complete, the
/// engine visits it before any operation: the earlier its hooks start to communicate, the more of
/// backward overlaps with it.
class Leaf : public Node {
 public:
  Leaf() : Node(std::numeric_limits<std::uint64_t>::max()) {}
  std::string_view name() const override { return "AccumulateGrad"; }
  Tensors backward(std::span<const Tensor> gradients) override;
  void release() override {}
  std::span<const Edge> edges() const override { return {}; }

  /// Whether the stored gradient has the shape, dtype, device and mesh of `numbers`.
  bool fits(const Tensor& numbers) const;

  Tensor gradient;
  std::vector<std::function<void(const Tensor&)>> post_accumulate_hooks;
  /// The leaf's tensor, for the hooks.
  LocalTensor local;
  Spec spec;
};

/// Access to the graph data of a tensor.
class Graph {
 public:
  static const base::Counted<Node>& producer(const Tensor& tensor) {
    return tensor.body().producer;
  }
  static std::uint32_t output(const Tensor& tensor) { return tensor.body().output; }
  static Leaf* leaf(const Tensor& tensor);
  /// Whether it is a view of another tensor.
  static bool is_view(const Tensor& tensor) { return tensor.body().view != Tensor::View::none; }
  static void mark_view(const Tensor& tensor, const Tensor& base);
  /// Whether it was made as a view of a distributed tensor, and has copies of what it was to show:
  /// what is written to it would be lost.
  static bool is_copy(const Tensor& view) { return view.body().is_copy; }
  static void mark_copy(const Tensor& view, bool is_copy = true) { view.body_->is_copy = is_copy; }
  /// @throws Error for a view of an operation's result that was changed in place since
  static void check_not_stale(const Tensor& tensor);
  /// Whether no other tensor shares its elements.
  static bool is_sole_owner(const Tensor& tensor) {
    return tensor.body_->owners() == 1 && tensor.local().storage()->owners() == 1;
  }
  static void set_producer(const Tensor& tensor, base::Counted<Node> producer,
                           std::uint32_t output = 0) {
    tensor.body_->producer = std::move(producer);
    tensor.body_->output = output;
  }
  /// The redistribution that the tensor remembers, if it goes to `placements`; else null.
  static const AskedMove* repeated_move(const Tensor& tensor,
                                        std::span<const Placement> placements) {
    return tensor.repeated_move(placements);
  }
  /// The same of a move to another mesh.
  static const KeptCrossing* repeated_move(const Tensor& tensor, const DeviceMesh& mesh,
                                           std::span<const Placement> placements) {
    return tensor.repeated_move(mesh, placements);
  }
  /// Swaps elements, layout and graph data of two tensors; all handles of each see the other's.
  static void exchange(const Tensor& a, const Tensor& b);
  /// Whether operations of this thread are recorded.
  static bool is_on() { return on_; }
  static bool set_on(bool on) { return std::exchange(on_, on); }

 private:
  static constinit thread_local bool on_;
};

}  // namespace dtrun::dtensor
