#include "dtrun/dtensor/nn/meta_scope.h"

#include "autograd/deferred.h"
#include "dtrun/tensor/ops.h"

namespace dtrun::dtensor::nn {

MetaScope::MetaScope() {
  Deferred::enter();
}
MetaScope::~MetaScope() {
  Deferred::leave();
}

void materialize(const Module& module) {
  for (const auto& tensors : {module.parameters(), module.buffers()}) {
    for (const Tensor& tensor : tensors) {
      if (Deferred::is(tensor))
        Deferred::fill(tensor, tensors::empty(tensor.shape(), {tensor.dtype(), tensor.device()}));
    }
  }
}

}  // namespace dtrun::dtensor::nn
