// Reduction: combines the ranks' pieces of one buffer as a ReduceOp says. Pure functions.
#pragma once

#include <cstdint>

#include "dtrun/collectives/reduce_op.h"
#include "dtrun/tensor/dtype.h"

namespace dtrun::collectives {

/// output = pieces[0] op pieces[1] op ..., in this order, for avg divided by `n`. The output may be
/// one of the pieces.
void reduce_pieces(ReduceOp op, tensors::DType dtype, void* output, const void* const* pieces,
                   int n, std::int64_t count);

}  // namespace dtrun::collectives
