#include "autograd/engine.h"

#include <map>
#include <utility>

#include "dtrun/base/error.h"
#include "dtrun/dtensor/autograd.h"
#include "dtrun/dtensor/ops.h"

namespace dtrun::dtensor {
namespace {

/// What has come so far for a node: one sum per output.
struct Due {
  base::Counted<Node> node;
  Tensors gradients;
  std::vector<Spec> specs;  ///< of the outputs
};

class Engine {
 public:
  explicit Engine(BackwardOptions options) : options_(options) {}

  void add(const Edge& edge, const Tensor& gradient) {
    if (!edge.node || !gradient.defined()) return;
    check(edge, gradient);
    Due& due = due_[{edge.node->sequence(), edge.node.get()}];
    due.node = edge.node;
    if (due.gradients.size() <= edge.output) {
      due.gradients.resize(edge.output + 1);
      due.specs.resize(edge.output + 1);
    }
    Tensor& sum = due.gradients[edge.output];
    // P + P stays P: what is not reduced yet is reduced once, when all has come.
    sum = sum.defined() ? dtensor::add(sum, gradient) : gradient;
    due.specs[edge.output] = edge.spec;
  }

  void run() {
    while (!due_.empty()) {
      Due due = std::move(due_.rbegin()->second);
      due_.erase(std::prev(due_.end()));
      deliver(due);
    }
  }

 private:
  void check(const Edge& edge, const Tensor& gradient) const {
    if (gradient.shape() == edge.shape && gradient.dtype() == edge.dtype) return;
    throw base::Error(base::ErrorCode::kInvalidArgument,
                      "a gradient of shape " + tensors::shape_to_string(gradient.shape()) + ", " +
                          std::string(tensors::dtype_name(gradient.dtype())) +
                          " came back for a tensor of shape " +
                          tensors::shape_to_string(edge.shape) + ", " +
                          std::string(tensors::dtype_name(edge.dtype)),
                      "on the way to " + std::string(edge.node->name()),
                      "backward gives for each input a gradient of its shape and dtype");
  }

  void deliver(Due& due) {
    for (std::size_t i = 0; i < due.gradients.size(); ++i) {
      if (due.gradients[i].defined()) settle(due, i);
    }
    const std::span<const Edge> edges = due.node->edges();
    const Tensors back = due.node->backward(due.gradients);
    for (std::size_t i = 0; i < edges.size(); ++i) add(edges[i], back[i]);
    if (!options_.retain_graph) due.node->release();
  }

  /// The whole gradient of one output: placed, and shown to hooks.
  void settle(Due& due, std::size_t output) {
    Tensor& gradient = due.gradients[output];
    const Spec& spec = due.specs[output];
    const auto* hooks = due.node->find_hooks(static_cast<std::uint32_t>(output));
    if (spec && (hooks != nullptr || !due.node->passes_partial_on())) {
      gradient = gradient.redistribute(gradient_placements(spec.placements()), spec.shard_order());
    }
    if (hooks == nullptr) return;
    for (const GradientHook& hook : *hooks) {
      Tensor other = hook(gradient);
      if (other.defined()) gradient = std::move(other);
    }
  }

  const BackwardOptions options_;
  /// By sequence number; a tie, of leaves of other threads' making, is broken by nothing that
  /// communicates.
  std::map<std::pair<std::uint64_t, Node*>, Due> due_;
};

}  // namespace

Placements gradient_placements(const Placements& placements) {
  Placements placed = placements;
  for (Placement& placement : placed) {
    if (placement.is_partial()) placement = Replicate();
  }
  return placed;
}

void run_backward(const Tensor& root, const Tensor& gradient, BackwardOptions options) {
  options.retain_graph = options.retain_graph || options.create_graph;
  const GradMode mode(options.create_graph);
  Engine engine(options);
  engine.add(Edge::to(root), gradient);
  engine.run();
}

}  // namespace dtrun::dtensor
