#include "reduction.h"

#include "combine_op.h"
#include "dtrun/tensor/reduce_kernel.h"

namespace dtrun::collectives {

void reduce_pieces(ReduceOp op, tensors::DType dtype, void* output, const void* const* pieces,
                   int n, std::int64_t count) {
  if (op == ReduceOp::avg) return tensors::average_all(dtype, output, pieces, n, count);
  tensors::combine_all(combine_op(op), dtype, output, pieces, n, count);
}

}  // namespace dtrun::collectives
