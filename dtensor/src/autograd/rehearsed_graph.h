// RehearsedGraph: what operators in place make of a tensor's graph while calls are rehearsed, and
// what backward() makes of the gradients of leaves and of those that retain_grad() asked for, taken
// back at the end. On one thread's stack.
#pragma once

#include <cstdint>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "autograd/node.h"

namespace dtrun::dtensor {

class RehearsedGraph {
 public:
  RehearsedGraph() : outer_(std::exchange(innermost_, this)) {}
  ~RehearsedGraph() {
    // The last first: a tensor may have been written twice.
    for (auto write = writes_.rbegin(); write != writes_.rend(); ++write) {
      if (write->was_kept) write->producer->ask_to_keep(write->output);
      Graph::set_producer(write->target, std::move(write->producer), write->output);
    }
    for (auto& [key, noted] : leaves_) noted.leaf->gradient = std::move(noted.gradient);
    for (auto& [key, noted] : kept_)
      noted.node->set_kept_gradient(key.second, std::move(noted.gradient));
    innermost_ = outer_;
  }
  RehearsedGraph(const RehearsedGraph&) = delete;
  RehearsedGraph& operator=(const RehearsedGraph&) = delete;

  /// The target is what the result is, as far as gradients go; nothing outside of a rehearsal.
  /// retain_grad() was said of the target, and holds for what makes it now.
  static void write(const Tensor& target, const Tensor& result) {
    if (innermost_ == nullptr) return;
    const base::Counted<Node> before = Graph::producer(target);
    const std::uint32_t output = Graph::output(target);
    const bool was_kept = before && before->keeps_gradient(output) && result.requires_grad();
    innermost_->writes_.push_back({target, before, output, was_kept});
    Graph::set_producer(target, Graph::producer(result), Graph::output(result));
    if (!was_kept) return;
    note_kept_gradient(*before, output);
    before->stop_keeping(output);
    target.retain_grad();
  }

  /// The leaf's gradient is about to change; the call does nothing outside of a rehearsal.
  static void note_gradient(Leaf& leaf) {
    if (innermost_ == nullptr) return;
    const auto [noted, is_new] = innermost_->leaves_.try_emplace(&leaf);
    if (is_new) noted->second = {base::Counted<Leaf>::share(&leaf), leaf.gradient};
  }
  /// The same of one that retain_grad() keeps.
  static void note_kept_gradient(Node& node, std::uint32_t output) {
    if (innermost_ == nullptr) return;
    const auto [noted, is_new] = innermost_->kept_.try_emplace({&node, output});
    if (is_new) noted->second = {base::Counted<Node>::share(&node), node.kept_gradient(output)};
  }

 private:
  struct Write {
    Tensor target;
    base::Counted<Node> producer;
    std::uint32_t output;
    bool was_kept;  ///< the gradient
  };
  /// A gradient as it was before, and what holds it.
  struct OfLeaf {
    base::Counted<Leaf> leaf;
    Tensor gradient;
  };
  struct OfOutput {
    base::Counted<Node> node;
    Tensor gradient;
  };
  static inline thread_local RehearsedGraph* innermost_ = nullptr;

  RehearsedGraph* const outer_;
  std::vector<Write> writes_;
  std::unordered_map<const Leaf*, OfLeaf> leaves_;
  std::map<std::pair<const Node*, std::uint32_t>, OfOutput> kept_;
};

}  // namespace dtrun::dtensor
