// neutral_like: what a rank without a part contributes to a reduction.
#pragma once

#include "dtrun/collectives/reduce_op.h"
#include "dtrun/tensor/tensor.h"

namespace dtrun::dtensor {

/// Neutral elements of `op`, of that dtype and on that device.
tensors::LocalTensor neutral_like(const tensors::LocalTensor& tensor, const tensors::Shape& shape,
                                  collectives::ReduceOp op);

}  // namespace dtrun::dtensor
