// HookedLeaf: for which place in the graph a parameter's gradients have a hook. A tensor that is
// taken out of the graph and put back has a new place in it.
#pragma once

#include "autograd/node.h"

namespace dtrun::dtensor {

class HookedLeaf {
 public:
  /// Whether the parameter needs a hook: its place is not the one of the last time.
  bool is_new(const Tensor& parameter) {
    if (!parameter.requires_grad()) place_ = {};
    Leaf* const leaf = Graph::leaf(parameter);
    // In a forward of fully_shard() over another axis it is no leaf.
    if (leaf == nullptr || leaf == place_.get()) return false;
    place_ = base::Counted<Node>::share(leaf);
    return true;
  }

 private:
  base::Counted<Node> place_ = {};  ///< held: another one cannot have its address
};

}  // namespace dtrun::dtensor
