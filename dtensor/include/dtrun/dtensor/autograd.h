// What steers the recording of gradients, per thread.
#pragma once

#include "dtrun/dtensor/tensor.h"

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

/// f(x) again in backward instead of what it would have kept: less memory, one more forward. What
/// else f uses of tensors gets its gradients, too.
Tensor checkpoint(const std::function<Tensor(const Tensor&)>& f, const Tensor& x);

}  // namespace dtrun::dtensor
