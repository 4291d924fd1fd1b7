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

// In two goes: pieces of some of `ranks` ranks become a part, all the parts the output.
/// An average of f16 or bf16 is divided in the first go: the sums may be too large for them. Then a
/// piece that is a part by itself goes through reduce_to_part, too.
bool scales_parts(ReduceOp op, tensors::DType dtype);
void reduce_to_part(ReduceOp op, tensors::DType dtype, void* part, const void* const* pieces, int n,
                    std::int64_t count, int ranks);
void reduce_parts(ReduceOp op, tensors::DType dtype, void* output, const void* const* parts, int n,
                  std::int64_t count, int ranks);

}  // namespace dtrun::collectives
