// ReduceOp: how a collective combines the ranks' elements.
#pragma once

#include <string_view>

#include "dtrun/tensor/dtype.h"

namespace dtrun::collectives {

/// avg is sum, then division by the group's size. Of integers: the exact sum as far as the dtype
/// holds it (it wraps, as sum does), then division truncated towards zero. band, bor, bxor:
/// integers and bool only. premul_sum multiplies each rank's elements by that rank's factor
/// (CallOptions::factor), then sums; floating point only.
enum class ReduceOp : unsigned char { sum, avg, product, min, max, band, bor, bxor, premul_sum };

std::string_view reduce_op_name(ReduceOp op);
/// "sum", "avg", ... @throws Error kInvalidArgument
ReduceOp parse_reduce_op(std::string_view name);
/// bool: sum, max and bor are "or"; product, min and band are "and". False: band.. on floats, avg
/// on bool, premul_sum on all that is no float.
bool reduce_op_supports(ReduceOp op, tensors::DType dtype);

}  // namespace dtrun::collectives
