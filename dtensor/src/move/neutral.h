// neutral_like: what a rank with no part of a reduction puts in.
#pragma once

#include "dtrun/collectives/reduce_op.h"
#include "dtrun/tensor/tensor.h"

namespace dtrun::dtensor {

/// Elements that `op` leaves every other element unchanged by, of that dtype and on that device.
tensors::LocalTensor neutral_like(const tensors::LocalTensor& tensor, const tensors::Shape& shape,
                                  collectives::ReduceOp op);

}  // namespace dtrun::dtensor
