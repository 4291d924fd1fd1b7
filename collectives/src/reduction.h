// Reduction: combines the ranks' pieces of one buffer as a ReduceOp says. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "dtrun/collectives/reduce_op.h"
#include "dtrun/tensor/dtype.h"

namespace dtrun::collectives {

/// output = pieces[0] op pieces[1] op ..., in this order, for avg divided by `n`. The output may be
/// one of the pieces.
void reduce_pieces(ReduceOp op, tensors::DType dtype, void* output, const void* const* pieces,
                   int n, std::int64_t count);

// In two goes: the pieces of some ranks become a part, all the parts the output. Parts of f16 and
// bf16 are f32, so that these are rounded once here, too.
std::size_t part_item_size(tensors::DType dtype);
/// @param part apart from the pieces where its elements are larger
void reduce_to_part(ReduceOp op, tensors::DType dtype, void* part, const void* const* pieces, int n,
                    std::int64_t count);
/// @param ranks of which the parts are made
void reduce_parts(ReduceOp op, tensors::DType dtype, void* output, const void* const* parts, int n,
                  std::int64_t count, int ranks);

}  // namespace dtrun::collectives
