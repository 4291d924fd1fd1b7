// add, sub, mul and div of CUDA tensors: operands in one dtype, then one kernel.
#include "cuda/kernels.h"
#include "dtrun/tensor/ops.h"
#include "dtrun/tensor/reduce_kernel.h"
#include "ops/map_call.h"
#include "require.h"

namespace dtrun::tensors {
namespace {

cuda::BinaryOp device_operation(const MapOperator& op) {
  return &op == &kAdd   ? cuda::BinaryOp::add
         : &op == &kSub ? cuda::BinaryOp::sub
         : &op == &kMul ? cuda::BinaryOp::mul
                        : cuda::BinaryOp::div;
}

/// A number, or a tensor of one number, is a number on every device.
LocalTensor on_device(const Operand& operand, Device device, DType result) {
  if (operand.is_number()) {
    return full({}, operand.number(),
                {.dtype = is_half(result) ? DType::f32 : result, .device = device});
  }
  const LocalTensor& tensor = operand.tensor();
  return tensor.device().is_cpu() && tensor.dim() == 0 ? tensor.to(device) : tensor;
}

Device device_of(const Operand& a, const Operand& b) {
  if (a.is_number()) return b.tensor().device();
  if (b.is_number() || !a.tensor().device().is_cpu()) return a.tensor().device();
  return a.tensor().dim() == 0 ? b.tensor().device() : a.tensor().device();
}

}  // namespace

bool has_device_kernel(const MapOperator& op) {
  return &op == &kAdd || &op == &kSub || &op == &kMul || &op == &kDiv;
}

LocalTensor map_on_device(const MapOperator& op, const Operand& a, const Operand& b) {
  const Operand operands[] = {a, b};
  const DType common = common_dtype(op.name, operands);
  const DType result = &op == &kDiv && !is_floating_point(common) ? DType::f32 : common;
  const Device device = device_of(a, b);
  const LocalTensor left = on_device(a, device, result);
  const LocalTensor right = on_device(b, device, result);
  require_one_device(op.name, left, right);
  const Shape shape = broadcast_shapes(left.shape(), right.shape());
  // As on the host, a single factor or divisor meets half types in float, unrounded.
  const bool scales = &op == &kMul || &op == &kDiv;
  const bool keeps_precision = scales && is_half(result) && right.numel() == 1;
  const DType dtype = keeps_precision ? DType::f32 : result;
  const LocalTensor out = empty(shape, {dtype, device});
  cuda::binary(device_operation(op), out, left.to(result).to(dtype).expand(shape),
               right.to(keeps_precision ? dtype : result).expand(shape));
  return out.to(result);
}

}  // namespace dtrun::tensors
