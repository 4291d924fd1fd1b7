// Pointwise calls on CUDA devices: turns the operands of the host's loop into those of a kernel.
#include <fmt/core.h>

#include "copy_kernel.h"
#include "cuda/kernels.h"
#include "cuda/map.h"
#include "dtrun/base/error.h"
#include "dtrun/tensor/ops.h"
#include "ops/map_call.h"

namespace dtrun::tensors {
namespace {

using base::Error;
using base::ErrorCode;

bool is_number_elsewhere(const Operand& operand) {
  return operand.is_number() || (operand.tensor().device().is_cpu() && operand.tensor().dim() == 0);
}

/// Kernels have no types of their own for small integers, nor for half types.
DType device_compute(const MapOperator& op, DType compute) {
  switch (compute) {
    case DType::f16:
    case DType::bf16:
      return DType::f32;
    case DType::i16:
    case DType::i8:
    case DType::u8:
      return DType::i32;
    case DType::boolean:
      return op.domain == Domain::as_bool || op.function == MapFunction::bit_not ? DType::boolean
                                                                                 : DType::i32;
    default:
      return compute;
  }
}

/// Not for bool, whose "not" is no bitwise complement.
MapFunction device_function(const MapOperator& op, DType compute) {
  const bool of_bool = op.function == MapFunction::bit_not && compute == DType::boolean;
  return of_bool ? MapFunction::logical_not : op.function;
}

bool divides_integers(const MapOperator& op, DType compute) {
  return !is_floating_point(compute) && op.function >= MapFunction::floor_divide &&
         op.function <= MapFunction::fmod;
}

/// A number as the host's loop sees it, after rounding; it is exact in both representations.
struct NumberForms {
  double floating = 0;
  std::int64_t integer = 0;
};
NumberForms number_in(DType compute, DType through, DType stored, const void* element) {
  constexpr std::int64_t kSteps[] = {0, 0};
  std::uint64_t rounded = 0, computed = 0;
  NumberForms number;
  const auto convert = [&](DType to, void* target, DType from, const void* source) {
    char* const pointers[] = {static_cast<char*>(target),
                              static_cast<char*>(const_cast<void*>(source))};
    copy_kernel(to, from)(pointers, kSteps, 1);
  };
  convert(through, &rounded, stored, element);
  convert(compute, &computed, through, &rounded);
  convert(DType::f64, &number.floating, compute, &computed);
  convert(DType::i64, &number.integer, compute, &computed);
  return number;
}

NumberForms number_of(const Operand& operand, DType compute, DType through) {
  if (!operand.is_number()) {
    const LocalTensor& tensor = operand.tensor();
    return number_in(compute, through, tensor.dtype(), tensor.data());
  }
  const Scalar number = operand.number();
  if (number.is_floating()) {
    const double value = number.to_double();
    return number_in(compute, through, DType::f64, &value);
  }
  const std::int64_t value = number.to_i64();
  return number_in(compute, through, DType::i64, &value);
}

/// Runs the kernel into a target of the result's dtype.
void launch_map(const LocalTensor& target, const MapOperator& op, const MapPlan& plan,
                Operands operands, const MapNumbers& numbers) {
  const DType compute = device_compute(op, plan.compute);
  cuda::MapCall call{.arguments = {.function = device_function(op, plan.common),
                                   .numbers = numbers,
                                   .input_count = static_cast<int>(operands.size()),
                                   .inputs = {},
                                   .target = target.data(),
                                   .target_dtype = target.dtype(),
                                   .has_zero = nullptr},
                     .compute = compute,
                     .target = target,
                     .tensors = {}};
  for (std::size_t k = 0; k < operands.size(); ++k) {
    // The condition of where() is not converted.
    const bool rounds = compute != DType::boolean && !(&op == &kWhere && k == 0);
    const DType through = rounds ? plan.through_of(operands[k], k) : compute;
    cuda::MapInput& input = call.arguments.inputs[k];
    input = {nullptr, compute, through, 0, 0};
    if (is_number_elsewhere(operands[k])) {
      const NumberForms number = number_of(operands[k], compute, through);
      input.floating = number.floating;
      input.integer = number.integer;
    } else {
      const LocalTensor& tensor = operands[k].tensor();
      input.data = tensor.data();
      input.stored = tensor.dtype();
      call.tensors[k] = &tensor;
    }
  }
  if (!divides_integers(op, compute) || target.numel() == 0) return cuda::map(call);
  if (call.tensors[1] == nullptr) {
    if (call.arguments.inputs[1].integer == 0) refuse_zero_divisor();
    return cuda::map(call);
  }
  // An error as on the host, so the call waits for the device.
  const LocalTensor has_zero = zeros({}, {DType::u8, target.device()});
  call.arguments.has_zero = has_zero.data_as<std::uint8_t>();
  cuda::map(call);
  if (has_zero.item() != 0) refuse_zero_divisor();
}

}  // namespace

Device common_device(std::string_view operation, Operands operands) {
  for (const Operand& operand : operands) {
    if (is_number_elsewhere(operand)) continue;
    const Device device = operand.tensor().device();
    require_device(operation, device, operands);
    return device;
  }
  return kCpu;
}

void require_device(std::string_view operation, Device device, Operands operands) {
  for (const Operand& operand : operands) {
    if (operand.is_number() || operand.tensor().device() == device) continue;
    if (!device.is_cpu() && is_number_elsewhere(operand)) continue;
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} of tensors on {} and {}", operation, device.to_string(),
                            operand.tensor().device().to_string()),
                "all tensors of an operation must lie on the same device", "to() one of them");
  }
}

void map_on_device(const LocalTensor& target, const MapOperator& op, const MapPlan& plan,
                   Operands operands, const MapNumbers& numbers) {
  if (op.function == MapFunction::none) require_host(op.name, target);
  const DType result = op.result == MapResult::boolean ? DType::boolean : plan.result();
  if (target.dtype() == result) return launch_map(target, op, plan, operands, numbers);
  const LocalTensor unconverted = empty(target.shape(), {result, target.device()});
  launch_map(unconverted, op, plan, operands, numbers);
  target.copy_(unconverted);
}

}  // namespace dtrun::tensors
