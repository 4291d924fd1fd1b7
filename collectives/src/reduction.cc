#include "reduction.h"

#include "combine_op.h"
#include "dtrun/tensor/reduce_kernel.h"

namespace dtrun::collectives {

void reduce_pieces(ReduceOp op, tensors::DType dtype, void* output, const void* const* pieces,
                   int n, std::int64_t count) {
  if (op == ReduceOp::avg) return tensors::average_all(dtype, output, pieces, n, count, n);
  tensors::combine_all(combine_op(op), dtype, output, pieces, n, count);
}

bool scales_parts(ReduceOp op, tensors::DType dtype) {
  return op == ReduceOp::avg && tensors::is_half(dtype);
}

void reduce_to_part(ReduceOp op, tensors::DType dtype, void* part, const void* const* pieces, int n,
                    std::int64_t count, int ranks) {
  if (scales_parts(op, dtype)) return tensors::average_all(dtype, part, pieces, n, count, ranks);
  tensors::combine_all(combine_op(op), dtype, part, pieces, n, count);
}

void reduce_parts(ReduceOp op, tensors::DType dtype, void* output, const void* const* parts, int n,
                  std::int64_t count, int ranks) {
  if (op == ReduceOp::avg && !scales_parts(op, dtype))
    return tensors::average_all(dtype, output, parts, n, count, ranks);
  tensors::combine_all(combine_op(op), dtype, output, parts, n, count);
}

}  // namespace dtrun::collectives
