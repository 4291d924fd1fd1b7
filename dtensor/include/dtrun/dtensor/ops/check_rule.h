// check_rule: whether every sharding rule of the operators in a function is true. A rule claims:
// where the inputs lie so, each rank runs the kernel on what it has, and the results make up the
// whole result in that way. A wrong one gives wrong numbers in silence.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "dtrun/dtensor/autograd/tensor.h"

namespace dtrun::dtensor {

/// What a call of an operator claimed.
struct CheckedRule {
  std::string op;
  std::string rule;   ///< "S(0), R -> S(0)"
  std::string wrong;  ///< empty where the claim is true
};

/// Runs `function` on the whole samples, then once for each rule of each operator that it calls,
/// that one along the axis of the mesh, and compares. Collective.
/// @param samples local, the same on every rank @param mesh of one axis
/// @param tolerance relative to the greatest element, for what is summed in another order
/// @throws Error kInvalidArgument for a mesh of several axes, and what `function` throws
std::vector<CheckedRule> check_rule(const std::function<Tensor(const Tensors&)>& function,
                                    const Tensors& samples, const DeviceMesh& mesh,
                                    double tolerance = 1e-12);

}  // namespace dtrun::dtensor
