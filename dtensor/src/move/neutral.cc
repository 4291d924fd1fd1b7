#include "move/neutral.h"

#include <cstdint>
#include <limits>

#include "dtrun/tensor/ops.h"

namespace dtrun::dtensor {
namespace {

using collectives::ReduceOp;
using tensors::DType;
using tensors::LocalTensor;
using tensors::Shape;

std::int64_t largest_integer(DType dtype) {
  switch (dtype) {
    case DType::i64:
      return std::numeric_limits<std::int64_t>::max();
    case DType::i32:
      return std::numeric_limits<std::int32_t>::max();
    case DType::i16:
      return std::numeric_limits<std::int16_t>::max();
    case DType::i8:
      return std::numeric_limits<std::int8_t>::max();
    case DType::u8:
      return std::numeric_limits<std::uint8_t>::max();
    default:
      return 1;
  }
}

std::int64_t smallest_integer(DType dtype) {
  switch (dtype) {
    case DType::i64:
      return std::numeric_limits<std::int64_t>::min();
    case DType::i32:
      return std::numeric_limits<std::int32_t>::min();
    case DType::i16:
      return std::numeric_limits<std::int16_t>::min();
    case DType::i8:
      return std::numeric_limits<std::int8_t>::min();
    default:
      return 0;
  }
}

/// The neutral element of `op`. All bits set is -1 for signed integers and the largest unsigned
/// one.
std::int64_t neutral_integer(ReduceOp op, DType dtype) {
  switch (op) {
    case ReduceOp::product:
      return 1;
    case ReduceOp::min:
      return largest_integer(dtype);
    case ReduceOp::max:
      return smallest_integer(dtype);
    case ReduceOp::band:
      return smallest_integer(dtype) < 0 ? -1 : largest_integer(dtype);
    case ReduceOp::sum:
    case ReduceOp::avg:
    case ReduceOp::bor:
    case ReduceOp::bxor:
    case ReduceOp::premul_sum:  // no Partial has it
      break;
  }
  return 0;
}

/// The neutral element of a floating point sum is -0: 0 + -0 would be 0.
double neutral_floating(ReduceOp op) {
  const double infinity = std::numeric_limits<double>::infinity();
  if (op == ReduceOp::product) return 1;
  if (op == ReduceOp::min) return infinity;
  return op == ReduceOp::max ? -infinity : -0.0;
}

}  // namespace

LocalTensor neutral_like(const LocalTensor& tensor, const Shape& shape, ReduceOp op) {
  LocalTensor result = tensors::empty(shape, {.dtype = tensor.dtype(), .device = tensor.device()});
  if (tensors::is_floating_point(tensor.dtype())) {
    result.fill_(neutral_floating(op));
    return result;
  }
  // Not fill_(): it takes a double, which cannot represent the largest i64.
  const std::vector<std::int64_t> value = {neutral_integer(op, tensor.dtype())};
  result.copy_(tensors::tensor_from(value, {}, tensor.dtype()).to(tensor.device()));
  return result;
}

}  // namespace dtrun::dtensor
