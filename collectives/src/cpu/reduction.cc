#include "reduction.h"

#include "dtrun/tensor/reduce_kernel.h"

namespace dtrun::collectives::cpu {

using tensors::CombineOp;

namespace {

CombineOp combine_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::avg:
      return CombineOp::sum;
    case ReduceOp::product:
      return CombineOp::product;
    case ReduceOp::min:
      return CombineOp::min;
    case ReduceOp::max:
      return CombineOp::max;
    case ReduceOp::band:
      return CombineOp::band;
    case ReduceOp::bor:
      return CombineOp::bor;
    case ReduceOp::bxor:
      return CombineOp::bxor;
  }
  return CombineOp::sum;
}

}  // namespace

void reduce_pieces(ReduceOp op, tensors::DType dtype, void* output, const void* const* pieces,
                   int n, std::int64_t count) {
  tensors::combine_all(combine_op(op), dtype, output, pieces, n, count);
  if (op == ReduceOp::avg) tensors::divide(dtype, output, count, n);
}

}  // namespace dtrun::collectives::cpu
