// Which dtype an operation runs in, as PyTorch decides it; binary_kernel.cc has the loops.
#include <fmt/core.h>

#include <cmath>

#include "binary_kernel.h"
#include "cuda/kernels.h"
#include "dtrun/base/error.h"
#include "dtrun/tensor/ops.h"
#include "dtrun/tensor/reduce_kernel.h"
#include "dtrun/tensor/result_type.h"
#include "require.h"

namespace dtrun::tensors {
namespace {

using base::Error;
using base::ErrorCode;

constexpr const char* name_of(BinaryOp op) {
  switch (op) {
    case BinaryOp::add:
      return "add";
    case BinaryOp::sub:
      return "sub";
    case BinaryOp::mul:
      return "mul";
    case BinaryOp::div:
      return "div";
  }
  return "";
}

/// A floating number never meets an integer dtype.
void require_fits(BinaryOp op, Scalar number, DType dtype) {
  const double value = number.to_double();
  const bool fits = dtype == DType::u8    ? std::abs(value) <= 0xff
                    : dtype == DType::i32 ? value >= -0x1p31 && value < 0x1p31
                                          : true;
  if (fits) return;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("{} of a {} tensor and {}", name_of(op), dtype_name(dtype), value),
              "the number does not fit that dtype", "to(DType::i64) first");
}

DType result_dtype(BinaryOp op, DType common) {
  return op == BinaryOp::div && !is_floating_point(common) ? DType::f32 : common;
}

void run_kernel(BinaryOp op, const LocalTensor& out, const LocalTensor& a, const LocalTensor& b) {
  if (!out.device().is_cpu()) return cuda::binary(op, out, a, b);
  const LoopOperand operands[] = {LoopOperand::of(out), LoopOperand::of(a), LoopOperand::of(b)};
  for_each_row(out.shape(), operands, binary_kernel(op, out.dtype()));
}

LocalTensor run(BinaryOp op, const LocalTensor& a, const LocalTensor& b, DType result) {
  // A number is a number on every device; it is the other one's operation.
  if (a.device() != b.device() && a.device().is_cpu() && a.dim() == 0) {
    return run(op, a.to(b.device()), b, result);
  }
  if (a.device() != b.device() && b.device().is_cpu() && b.dim() == 0) {
    return run(op, a, b.to(a.device()), result);
  }
  require_one_device(name_of(op), a, b);
  const Shape shape = broadcast_shapes(a.shape(), b.shape());
  // As in PyTorch, a single element on the right meets half types in float, unrounded.
  const bool keeps_precision = is_half(result) && b.numel() == 1;
  const DType dtype = keeps_precision ? DType::f32 : result;
  const LocalTensor left = a.to(result).to(dtype).expand(shape);
  const LocalTensor right = b.to(dtype).expand(shape);
  const LocalTensor out = empty(shape, {dtype, a.device()});
  run_kernel(op, out, left, right);
  return out.to(result);
}

[[noreturn]] void refuse_bool_subtraction() {
  throw Error(ErrorCode::kInvalidArgument, "sub does not take bool tensors", "",
              "to(DType::i64) first");
}

LocalTensor binary(BinaryOp op, const LocalTensor& a, const LocalTensor& b) {
  if (op == BinaryOp::sub && (a.dtype() == DType::boolean || b.dtype() == DType::boolean)) {
    refuse_bool_subtraction();
  }
  return run(op, a, b, result_dtype(op, result_type(a, b)));
}

enum class NumberSide { left, right };

LocalTensor binary(BinaryOp op, const LocalTensor& a, Scalar number, NumberSide side) {
  if (op == BinaryOp::sub &&
      (a.dtype() == DType::boolean || number.kind() == Scalar::Kind::boolean)) {
    refuse_bool_subtraction();
  }
  const DType result = result_dtype(op, result_type(a, number));
  require_fits(op, number, result);
  const LocalTensor scalar =
      full({}, number, {.dtype = is_half(result) ? DType::f32 : result, .device = a.device()});
  return side == NumberSide::right ? run(op, a, scalar, result) : run(op, scalar, a, result);
}

}  // namespace

LocalTensor add(const LocalTensor& a, const LocalTensor& b) {
  return binary(BinaryOp::add, a, b);
}
LocalTensor sub(const LocalTensor& a, const LocalTensor& b) {
  return binary(BinaryOp::sub, a, b);
}
LocalTensor mul(const LocalTensor& a, const LocalTensor& b) {
  return binary(BinaryOp::mul, a, b);
}
LocalTensor div(const LocalTensor& a, const LocalTensor& b) {
  return binary(BinaryOp::div, a, b);
}

LocalTensor add(const LocalTensor& a, Scalar b) {
  return binary(BinaryOp::add, a, b, NumberSide::right);
}
LocalTensor sub(const LocalTensor& a, Scalar b) {
  return binary(BinaryOp::sub, a, b, NumberSide::right);
}
LocalTensor mul(const LocalTensor& a, Scalar b) {
  return binary(BinaryOp::mul, a, b, NumberSide::right);
}
LocalTensor div(const LocalTensor& a, Scalar b) {
  return binary(BinaryOp::div, a, b, NumberSide::right);
}

LocalTensor sub(Scalar a, const LocalTensor& b) {
  return binary(BinaryOp::sub, b, a, NumberSide::left);
}
LocalTensor div(Scalar a, const LocalTensor& b) {
  // PyTorch's result, rounding included, is that of the reciprocal.
  return mul(binary(BinaryOp::div, b, 1, NumberSide::left), a);
}

}  // namespace dtrun::tensors
