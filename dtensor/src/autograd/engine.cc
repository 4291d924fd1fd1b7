#include "autograd/engine.h"

#include <functional>
#include <limits>
#include <optional>
#include <queue>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "autograd/rehearsed_graph.h"
#include "dtrun/base/check.h"
#include "dtrun/base/error.h"
#include "dtrun/dtensor/autograd/backward_end.h"
#include "dtrun/dtensor/autograd/grad.h"
#include "move/cause.h"
#include "move/move_observer.h"
#include "move/section.h"
#include "move/span.h"

namespace dtrun::dtensor {
namespace {

using base::Error;
using base::ErrorCode;

/// The engine's state for one node: how many gradients are missing, and one sum per output.
struct Due {
  std::uint32_t pending = 0;  ///< edges that have brought nothing yet
  bool needed = false;        ///< a gradient that is wanted lies on its way
  Tensors gradients;
  std::vector<Spec> specs;  ///< of the outputs
};

bool any_defined(const Tensors& gradients) {
  for (const Tensor& gradient : gradients) {
    if (gradient.defined()) return true;
  }
  return false;
}

std::string described(const Tensor& gradient) {
  return "shape " + tensors::shape_to_string(gradient.shape()) + ", " +
         std::string(tensors::dtype_name(gradient.dtype()));
}

/// Makes a number that every rank has a replicated tensor of the mesh.
Tensor replicated(const Tensor& number, const Spec& spec) {
  return Tensor::from_local(number.reshape(spec.shape()), spec.mesh(),
                            Placements(spec.placements().size(), Replicate()));
}

void check(const Edge& edge, const Tensor& gradient) {
  const bool fits = gradient.shape() == edge.shape && gradient.dtype() == edge.dtype;
  const bool one_mesh =
      !edge.spec || !gradient.is_distributed() || gradient.device_mesh() == edge.spec.mesh();
  const bool placed = !edge.spec || gradient.is_distributed() || gradient.numel() == 1;
  if (fits && one_mesh && placed) return;
  throw Error(ErrorCode::kInvalidArgument,
              "a gradient of " + described(gradient) + ", " + gradient.spec().to_string() +
                  ", came back for a tensor of shape " + tensors::shape_to_string(edge.shape) +
                  ", " + std::string(tensors::dtype_name(edge.dtype)) + ", " +
                  edge.spec.to_string(),
              "on the way to " + std::string(edge.node->name()),
              "a gradient has the shape, the dtype and the mesh of its tensor");
}

[[noreturn]] void refuse_wanted(const Node& node) {
  throw Error(ErrorCode::kInvalidArgument, "grad() through " + std::string(node.name()),
              "it fills the gradients of parameters by itself, whichever grad() asks for",
              "backward()");
}

class Engine {
 public:
  Engine(BackwardOptions options, std::vector<Edge> roots, std::span<const Edge> wanted)
      : options_(options), roots_(std::move(roots)), wanted_(wanted), captured_(wanted.size()) {
    for (const Edge& root : roots_) {
      count_from(root.node.get());
      ++due_.at(root.node.get()).pending;
    }
  }

  Tensors run(const Tensors& gradients) {
    for (std::size_t i = 0; i < roots_.size(); ++i) arrive(roots_[i], gradients[i]);
    while (!ready_.empty()) {
      Node* const node = std::get<Node*>(ready_.top());
      ready_.pop();
      Due due = std::move(due_.at(node));
      due_.erase(node);
      deliver(*node, due);
    }
    return std::move(captured_);
  }

 private:
  /// Counts the edges to each reachable node and marks the needed ones. Iterative, because a chain
  /// of nodes may be longer than the call stack allows.
  void count_from(Node* root) {
    if (!enter(root)) return;
    std::vector<std::pair<Node*, std::size_t>> way = {{root, 0}};
    while (!way.empty()) {
      auto& [node, next] = way.back();
      if (next < node->edges().size()) {
        Node* const child = node->edges()[next++].node.get();
        if (child != nullptr && enter(child)) way.emplace_back(child, 0);
      } else {
        leave(*node);
        way.pop_back();
      }
    }
  }
  /// Returns whether the node is new.
  bool enter(Node* node) {
    const auto [place, is_new] = due_.try_emplace(node);
    if (is_new) place->second.needed = wanted_.empty();
    if (!wanted_.empty() && node->fills_other_leaves()) refuse_wanted(*node);
    return is_new;
  }
  void leave(Node& node) {
    Due& due = due_.at(&node);
    for (const Edge& wanted : wanted_) due.needed = due.needed || wanted.node.get() == &node;
    for (const Edge& edge : node.edges()) {
      if (edge.node) due.needed = due.needed || due_.at(edge.node.get()).needed;
    }
    if (!due.needed) return;
    for (const Edge& edge : node.edges()) {
      if (edge.node) ++due_.at(edge.node.get()).pending;
    }
  }

  void arrive(const Edge& edge, const Tensor& gradient) {
    if (!edge.node) return;
    Due& due = due_.at(edge.node.get());
    if (!due.needed) return;
    if (gradient.defined()) add_to(due, edge, gradient);
    if (--due.pending > 0) return;
    ready_.emplace(edge.node->sequence(), --turn_, edge.node.get());
  }

  static void add_to(Due& due, const Edge& edge, const Tensor& gradient) {
    check(edge, gradient);
    if (due.gradients.size() <= edge.output) {
      due.gradients.resize(edge.output + 1);
      due.specs.resize(edge.output + 1);
    }
    Tensor& sum = due.gradients[edge.output];
    // Partial + Partial stays Partial: the sum is reduced once, when all gradients have come.
    sum = sum.defined() ? sum.add(gradient) : gradient;
    due.specs[edge.output] = edge.spec;
  }

  void deliver(Node& node, Due& due) {
    Tensors back(node.edges().size());
    std::optional<StandingSection> section;
    if (node.section() != nullptr) section.emplace(base::Counted<Section>::share(node.section()));
    if (any_defined(due.gradients)) {
      const Span span(Span::Kind::backward, node.name());
      for (std::size_t i = 0; i < due.gradients.size(); ++i) {
        if (due.gradients[i].defined()) settle(node, due, i);
      }
      if (leads_on(node)) {
        const Cause cause = Cause::backward_of(node.name());
        back = node.backward(due.gradients);
        DT_CHECK(back.size() == node.edges().size());
        if (!options_.retain_graph) node.release();
      }
    }
    const std::span<const Edge> edges = node.edges();
    for (std::size_t i = 0; i < edges.size(); ++i) arrive(edges[i], back[i]);
  }

  /// Whether backward of this node is needed. grad() fills no leaf and stops at the inputs.
  bool leads_on(const Node& node) const {
    if (wanted_.empty()) return true;
    for (const Edge& edge : node.edges()) {
      if (edge.node && due_.at(edge.node.get()).needed) return true;
    }
    return false;
  }

  /// Completes the gradient of one output: redistributes it, calls the hooks, keeps it if asked to.
  void settle(Node& node, Due& due, std::size_t output) {
    Tensor& gradient = due.gradients[output];
    const Spec& spec = due.specs[output];
    const auto index = static_cast<std::uint32_t>(output);
    const auto* hooks = node.find_hooks(index);
    const bool is_seen = hooks != nullptr || node.keeps_gradient(index) || is_wanted(node, index);
    if (is_seen || !node.passes_partial_on()) place(gradient, spec);
    if (hooks != nullptr) {
      // A copy: a hook may register another one.
      const std::vector<GradientHook> all = *hooks;
      const Cause cause = Cause::backward_of("a gradient's hook");
      for (const GradientHook& hook : all) replace(node, gradient, spec, hook(gradient));
    }
    if (node.keeps_gradient(index)) {
      RehearsedGraph::note_kept_gradient(node, index);
      node.keep_gradient(index, gradient);
    }
    for (std::size_t i = 0; i < wanted_.size(); ++i) {
      if (wanted_[i].node.get() == &node && wanted_[i].output == index) captured_[i] = gradient;
    }
  }
  bool is_wanted(const Node& node, std::uint32_t output) const {
    for (const Edge& wanted : wanted_) {
      if (wanted.node.get() == &node && wanted.output == output) return true;
    }
    return false;
  }
  static void replace(Node& node, Tensor& gradient, const Spec& spec, Tensor other) {
    if (!other.defined()) return;
    Edge edge;
    edge.node = base::Counted<Node>::share(&node);
    edge.shape = gradient.shape();
    edge.dtype = gradient.dtype();
    edge.spec = spec;
    check(edge, other);
    place(other, spec);
    gradient = std::move(other);
  }
  /// Redistributes a gradient to its tensor's placements. A local number that was used with
  /// distributed tensors gets a local gradient.
  static void place(Tensor& gradient, const Spec& spec) {
    const Cause cause = Cause::backward_of("the gradient's sum");
    if (!spec) {
      if (gradient.is_distributed()) gradient = gradient.full_tensor();
      return;
    }
    if (!gradient.is_distributed()) gradient = replicated(gradient, spec);
    gradient = gradient.redistribute(without_partials(spec.placements()), spec.shard_order());
  }

  const BackwardOptions options_;
  const std::vector<Edge> roots_;
  const std::span<const Edge> wanted_;
  Tensors captured_;
  std::unordered_map<Node*, Due> due_;
  /// Nodes whose gradients are complete: highest sequence number first, then in the order in which
  /// they became ready.
  std::priority_queue<std::tuple<std::uint64_t, std::uint64_t, Node*>> ready_;
  std::uint64_t turn_ = std::numeric_limits<std::uint64_t>::max();
};

/// The nested backward passes of this thread, and the callbacks for the end of the outermost.
struct Passes {
  int depth = 0;
  std::vector<std::function<void(BackwardEnd)>> waiting;
};
thread_local Passes passes;

class Pass {
 public:
  Pass() { ++passes.depth; }
  ~Pass() {
    if (--passes.depth == 0) call(BackwardEnd::failed);
  }
  Pass(const Pass&) = delete;
  Pass& operator=(const Pass&) = delete;

  /// If a callback throws, the exception propagates and the remaining callbacks get
  /// BackwardEnd::failed.
  void finish() {
    if (passes.depth > 1) return;
    const Cause cause = Cause::backward_of("the end of all");
    while (!passes.waiting.empty()) {
      const auto first = std::move(passes.waiting.front());
      passes.waiting.erase(passes.waiting.begin());
      first(BackwardEnd::done);
    }
  }

 private:
  static void call(BackwardEnd end) noexcept {
    for (const auto& callback : std::exchange(passes.waiting, {})) callback(end);
  }
};

}  // namespace

int backward_depth() {
  return passes.depth;
}

void at_backward_end(std::function<void(BackwardEnd)> callback) {
  if (passes.depth == 0) {
    throw Error(ErrorCode::kUsage, "at_backward_end() outside of backward()",
                "nothing would ever call back", "call it in a hook or a Function's backward");
  }
  passes.waiting.push_back(std::move(callback));
}

Tensors run_backward(const Tensors& roots, const Tensors& gradients, BackwardOptions options,
                     std::span<const Edge> wanted) {
  // A rehearsal leaves a graph that was there before it as it is.
  options.retain_graph = options.retain_graph || options.create_graph || MoveObserver::rehearsing();
  const GradMode mode(options.create_graph);
  std::vector<Edge> edges;
  for (const Tensor& root : roots) edges.push_back(Edge::to(root));
  Engine engine(options, std::move(edges), wanted);
  Pass pass;
  Tensors captured = engine.run(gradients);
  pass.finish();
  return captured;
}

}  // namespace dtrun::dtensor
