#include "dtrun/collectives/reduce_op.h"

#include <fmt/core.h>

#include "dtrun/base/error.h"

namespace dtrun::collectives {

namespace {
constexpr ReduceOp kAll[] = {ReduceOp::sum, ReduceOp::avg,  ReduceOp::product,
                             ReduceOp::min, ReduceOp::max,  ReduceOp::band,
                             ReduceOp::bor, ReduceOp::bxor, ReduceOp::premul_sum};
}

std::string_view reduce_op_name(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return "sum";
    case ReduceOp::avg:
      return "avg";
    case ReduceOp::product:
      return "product";
    case ReduceOp::min:
      return "min";
    case ReduceOp::max:
      return "max";
    case ReduceOp::band:
      return "band";
    case ReduceOp::bor:
      return "bor";
    case ReduceOp::bxor:
      return "bxor";
    case ReduceOp::premul_sum:
      return "premul_sum";
  }
  return "unknown";
}

ReduceOp parse_reduce_op(std::string_view name) {
  for (const ReduceOp op : kAll)
    if (reduce_op_name(op) == name) return op;
  throw base::Error(base::ErrorCode::kInvalidArgument, fmt::format("no reduce op '{}'", name), "",
                    "use one of sum, avg, product, min, max, band, bor, bxor, premul_sum");
}

bool reduce_op_supports(ReduceOp op, tensors::DType dtype) {
  const bool bitwise = op == ReduceOp::band || op == ReduceOp::bor || op == ReduceOp::bxor;
  if (bitwise) return !tensors::is_floating_point(dtype);
  if (op == ReduceOp::premul_sum) return tensors::is_floating_point(dtype);
  return !(op == ReduceOp::avg && dtype == tensors::DType::boolean);
}

}  // namespace dtrun::collectives
