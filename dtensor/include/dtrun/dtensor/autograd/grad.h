// What steers the recording of gradients, per thread. Operations with gradients of one's own:
// autograd::Function, in function.h.
#pragma once

#include "dtrun/dtensor/autograd/function.h"
#include "dtrun/dtensor/autograd/tensor.h"

namespace dtrun::dtensor {

/// While it lives, operations of this thread are recorded, or are not.
class GradMode {
 public:
  explicit GradMode(bool on);
  ~GradMode();
  GradMode(const GradMode&) = delete;
  GradMode& operator=(const GradMode&) = delete;

 private:
  const bool before_;
};

/// torch.no_grad().
class NoGrad : public GradMode {
 public:
  NoGrad() : GradMode(false) {}
};

bool is_grad_enabled();

/// The gradients of the sum of `outputs` with regard to `inputs`, leaves or not; no grad() changes.
/// Undefined for an input that no output depends on.
/// @param grad_outputs of the outputs; not given: one, of outputs with one element
Tensors grad(const Tensors& outputs, const Tensors& inputs, const Tensors& grad_outputs = {},
             BackwardOptions options = {});

/// f(x) again in backward instead of what it would have kept: less memory, one more forward. What
/// else f uses of tensors gets its gradients, too; random numbers are the same both times.
/// @throws Error kInvalidArgument where f changes in place what it has not made; in backward: for
/// create_graph, where x was written to since, and from grad(), which cannot know what else f uses
Tensor checkpoint(const std::function<Tensor(const Tensor&)>& f, const Tensor& x);

}  // namespace dtrun::dtensor
