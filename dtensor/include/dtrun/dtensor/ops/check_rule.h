// check_rule tests every sharding rule of the operators that a function calls. A rule names
// placements of the inputs and of the result. It claims that each rank may run the kernel on its
// own parts, and that the results are then the parts of the whole result. A wrong rule would give
// wrong numbers without an error. A gradient is made of operators as well: what it calls is tested
// in the same way, and the gradient is compared under each rule of the function's own calls.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "dtrun/dtensor/autograd/tensor.h"

namespace dtrun::dtensor {

/// What a call of an operator claimed.
struct CheckedRule {
  enum class Caller : std::uint8_t { function, gradient };
  std::string op;
  std::string rule;   ///< "S(0), R -> S(0)"
  std::string wrong;  ///< empty where the claim is true
  Caller caller = Caller::function;
};

/// Runs `function` and its gradient on the whole samples, then once for each rule of each operator,
/// applied along the mesh axis, and compares the result and the gradients of the samples of
/// floating point. Collective.
/// @param samples local, the same on every rank @param mesh of one axis
/// @param tolerance relative to the greatest element, for what is summed in another order; more
/// where the result or a gradient is in f32, f16 or bf16
/// @throws Error kInvalidArgument for a mesh of several axes, and what `function` throws
std::vector<CheckedRule> check_rule(const std::function<Tensor(const Tensors&)>& function,
                                    const Tensors& samples, const DeviceMesh& mesh,
                                    double tolerance = 1e-12);

}  // namespace dtrun::dtensor
