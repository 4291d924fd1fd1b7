#include "reduction.h"

#include "combine_op.h"
#include "dtrun/tensor/reduce_kernel.h"

namespace dtrun::collectives::cpu {

void reduce_pieces(ReduceOp op, tensors::DType dtype, void* output, const void* const* pieces,
                   int n, std::int64_t count) {
  tensors::combine_all(combine_op(op), dtype, output, pieces, n, count);
  if (op == ReduceOp::avg) tensors::divide(dtype, output, count, n);
}

}  // namespace dtrun::collectives::cpu
