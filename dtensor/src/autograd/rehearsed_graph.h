// RehearsedGraph: what operators in place make of a tensor's graph while calls are rehearsed, and
// what backward() makes of leaves' gradients, taken back at the end. On one thread's stack.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "autograd/node.h"

namespace dtrun::dtensor {

class RehearsedGraph {
 public:
  RehearsedGraph() : outer_(std::exchange(innermost_, this)) {}
  ~RehearsedGraph() {
    // The last first: a tensor may have been written twice.
    for (auto write = writes_.rbegin(); write != writes_.rend(); ++write)
      Graph::set_producer(write->target, std::move(write->producer), write->output);
    for (auto& [leaf, gradient] : gradients_) leaf->gradient = std::move(gradient);
    innermost_ = outer_;
  }
  RehearsedGraph(const RehearsedGraph&) = delete;
  RehearsedGraph& operator=(const RehearsedGraph&) = delete;

  /// The target is what the result is, as far as gradients go; nothing outside of a rehearsal.
  static void write(const Tensor& target, const Tensor& result) {
    if (innermost_ == nullptr) return;
    innermost_->writes_.push_back({target, Graph::producer(target), Graph::output(target)});
    Graph::set_producer(target, Graph::producer(result), Graph::output(result));
  }

  /// The leaf's gradient is about to change; the call does nothing outside of a rehearsal.
  static void note_gradient(Leaf& leaf) {
    if (innermost_ == nullptr) return;
    const auto is_noted = [&](const auto& noted) { return noted.first.get() == &leaf; };
    if (std::ranges::none_of(innermost_->gradients_, is_noted))
      innermost_->gradients_.emplace_back(base::Counted<Leaf>::share(&leaf), leaf.gradient);
  }

 private:
  struct Write {
    Tensor target;
    base::Counted<Node> producer;
    std::uint32_t output;
  };
  static inline thread_local RehearsedGraph* innermost_ = nullptr;

  RehearsedGraph* const outer_;
  std::vector<Write> writes_;
  std::vector<std::pair<base::Counted<Leaf>, Tensor>> gradients_;  ///< as they were before
};

}  // namespace dtrun::dtensor
