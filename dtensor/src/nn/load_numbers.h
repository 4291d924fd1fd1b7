// Loading numbers: from a tensor of a state dict into the one that is there, which keeps its dtype,
// device and layout.
#pragma once

#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/dtensor/autograd/tensor.h"
#include "dtrun/dtensor/ops/creation.h"

namespace dtrun::dtensor::nn {

/// @param source distributed, or local: then all of it, the same on every rank
inline void load_numbers(const Tensor& target, const Tensor& source) {
  const NoGrad no_grad;
  if (source.is_distributed()) {
    target.copy_(source.detach());
    return;
  }
  const Tensor whole = source.detach().to(target.device());
  target.copy_(
      target.is_distributed()
          ? distribute_tensor(whole, target.device_mesh(), target.placements(),
                              {.source_rank = -1, .shard_order = target.spec().shard_order()})
          : whole);
}

}  // namespace dtrun::dtensor::nn
