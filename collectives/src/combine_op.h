// combine_op: what a reduction does to two elements.
#pragma once

#include "dtrun/collectives/reduce_op.h"
#include "dtrun/tensor/reduce_kernel.h"

namespace dtrun::collectives {

/// avg combines as sum, its division comes last; so does premul_sum, whose terms are products by
/// then.
inline tensors::CombineOp combine_op(ReduceOp op) {
  using tensors::CombineOp;
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::avg:
    case ReduceOp::premul_sum:
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

}  // namespace dtrun::collectives
