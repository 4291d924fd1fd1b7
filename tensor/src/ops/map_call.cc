#include "ops/map_call.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "dtrun/base/error.h"
#include "dtrun/tensor/ops.h"
#include "dtrun/tensor/shapes_only.h"
#include "loops/map_loop.h"
#include "require.h"

namespace dtrun::tensors {
namespace {

using base::Error;
using base::ErrorCode;

constexpr bool is_half_dtype(DType dtype) {
  return dtype == DType::f16 || dtype == DType::bf16;
}

/// A reason for refusing all others.
const char* taken_by(Domain domain) {
  switch (domain) {
    case Domain::integers:
      return "it takes integers";
    case Domain::integers_and_bool:
      return "it takes integers and bool";
    case Domain::floating:
      return "it takes floating point numbers";
    default:
      return "truth values are no numbers here";
  }
}

[[noreturn]] void refuse_dtype(const MapOperator& op, DType dtype, const char* remedy) {
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("{} does not take {} tensors", op.name, dtype_name(dtype)),
              taken_by(op.domain), remedy);
}

/// In which the result is, before it is called bool.
DType domain_dtype(const MapOperator& op, DType common) {
  const bool floating = is_floating_point(common);
  switch (op.domain) {
    case Domain::all:
    case Domain::as_bool:
      break;
    case Domain::numbers:
    case Domain::no_bool:
      if (common == DType::boolean) refuse_dtype(op, common, "to(DType::i64) first");
      break;
    case Domain::to_floating:
      return floating ? common : DType::f32;
    case Domain::floating:
      if (!floating) refuse_dtype(op, common, "to(DType::f32) first");
      break;
    case Domain::integers:
      if (floating || common == DType::boolean) refuse_dtype(op, common, "to(DType::i64) first");
      break;
    case Domain::integers_and_bool:
      if (floating) refuse_dtype(op, common, "to(DType::i64) first");
      break;
  }
  return common;
}

/// What the loop runs in.
DType compute_dtype(const MapOperator& op, DType common) {
  if (op.domain == Domain::as_bool) return DType::boolean;
  if (op.runs.of(common) != nullptr) return common;
  return is_half_dtype(common) ? DType::f32 : DType::i32;
}

Shape common_shape(Operands operands) {
  const Shape* first = nullptr;
  Shape shape;
  for (const Operand& operand : operands) {
    if (operand.is_number()) continue;
    const Shape& own = operand.tensor().shape();
    if (first == nullptr) {
      first = &own;
      shape = own;
    } else if (!(shape == own)) {
      shape = broadcast_shapes(shape, own);
    }
  }
  return shape;
}

const LocalTensor& first_tensor(const MapOperator& op, Operands operands) {
  for (const Operand& operand : operands) {
    if (!operand.is_number()) return operand.tensor();
  }
  throw Error(ErrorCode::kInvalidArgument, fmt::format("{} of numbers only", op.name),
              "one operand at least must be a tensor", "tensor(x) of one of them");
}

/// The numbers of a call, as elements.
struct NumberElements {
  std::array<double, kMostOperands> floating;
  std::array<std::int64_t, kMostOperands> integer;
};

MapOperand input_of(const MapPlan& plan, Operands operands, std::size_t k,
                    NumberElements& numbers) {
  const Operand& operand = operands[k];
  MapOperand input{};
  if (!operand.is_number()) {
    input = MapOperand::of(operand.tensor(), plan.compute);
  } else if (operand.number().is_floating()) {
    numbers.floating[k] = operand.number().to_double();
    input = MapOperand::of_number(&numbers.floating[k], DType::f64, plan.compute);
  } else {
    numbers.integer[k] = operand.number().to_i64();
    input = MapOperand::of_number(&numbers.integer[k], DType::i64, plan.compute);
  }
  input.through = plan.through_of(operand, k);
  return input;
}

/// Whether a call on the host runs in bf16, whose loop computes in float: nothing is converted on
/// the way to it.
bool runs_in_bf16(const LocalTensor& target, const MapOperator& op, const MapPlan& plan,
                  Operands operands) {
  if (op.bf16 == nullptr || plan.common != DType::bf16 || target.dtype() != DType::bf16)
    return false;
  for (std::size_t k = 0; k < operands.size(); ++k) {
    const bool is_rounded = plan.through_of(operands[k], k) == DType::bf16;
    if (!is_rounded && operands[k].dtype() != DType::bf16) return false;
  }
  return true;
}

/// Whether the operands are a tensor and a number that is a float, and the result has that dtype.
bool takes_float(const LocalTensor& target, DType dtype, const MapPlan& plan, Operands operands) {
  return operands.size() == 2 && plan.common == dtype && target.dtype() == dtype &&
         !operands[0].is_number() && operands[1].is_number() &&
         plan.through_of(operands[1], 1) == DType::f32;
}

void run_on_host(const LocalTensor& target, const MapOperator& op, const MapPlan& plan,
                 Operands operands, MapRun run, const MapNumbers& numbers) {
  const ShapesOnly shapes_only = shapes_only_for(target.dtype());
  NumberElements elements;
  std::array<MapOperand, kMostOperands - 1> inputs;
  for (std::size_t k = 0; k < operands.size(); ++k) {
    inputs[k] = input_of(plan, operands, k, elements);
  }
  const DType computed = op.result == MapResult::boolean ? DType::boolean : plan.compute;
  map_elements(target.shape(), MapOperand::of(target, computed),
               std::span<const MapOperand>(inputs.data(), operands.size()), run, numbers);
}

void run_map(const LocalTensor& target, const MapOperator& op, const MapPlan& plan,
             Operands operands, const MapNumbers& numbers) {
  if (!target.device().is_cpu()) return map_on_device(target, op, plan, operands, numbers);
  const MapPlan in_bf16{DType::bf16, DType::bf16, false};
  if (runs_in_bf16(target, op, plan, operands))
    return run_on_host(target, op, in_bf16, operands, op.bf16, numbers);
  const bool is_bf16 = plan.common == DType::bf16;
  const MapRun with_number = is_bf16 ? op.bf16_with_number : op.f32_with_number;
  if (with_number != nullptr &&
      takes_float(target, is_bf16 ? DType::bf16 : DType::f32, plan, operands)) {
    const Scalar number = operands[1].number();
    const float second = number.is_floating() ? static_cast<float>(number.to_double())
                                              : static_cast<float>(number.to_i64());
    return run_on_host(target, op, is_bf16 ? in_bf16 : plan, operands.first(1), with_number,
                       MapNumbers::of(static_cast<double>(second)));
  }
  run_on_host(target, op, plan, operands, op.runs.of(plan.compute), numbers);
}

bool scales_by_second(const MapOperator& op) {
  return &op == &kMul || &op == &kDiv || &op == &kFloorDivide || &op == &kTruncDivide;
}

MapPlan plan_of(const MapOperator& op, Operands operands) {
  for (const Operand& operand : operands) {
    if (op.domain == Domain::no_bool && operand.dtype() == DType::boolean)
      refuse_dtype(op, DType::boolean, "to(DType::i64) first");
  }
  const DType common = domain_dtype(op, common_dtype(op.name, operands));
  for (const Operand& operand : operands) {
    if (operand.is_number() && !is_floating_point(common))
      require_fits(op.name, operand.number(), common);
  }
  return {common, compute_dtype(op, common), is_half_dtype(common) && scales_by_second(op)};
}

MapRun dense_run(const MapOperator& op, DType dtype) {
  if (dtype == DType::bf16 && op.bf16 != nullptr) return op.bf16;
  return op.runs.of(dtype);
}

/// Most calls: nothing broadcasts, converts or skips.
bool is_dense_call(const MapOperator& op, Operands operands) {
  if (operands[0].is_number()) return false;
  const LocalTensor& first = operands[0].tensor();
  if (dense_run(op, first.dtype()) == nullptr) return false;
  for (const Operand& operand : operands) {
    if (operand.is_number()) return false;
    const LocalTensor& tensor = operand.tensor();
    if (tensor.dtype() != first.dtype() || !tensor.is_contiguous() || !tensor.device().is_cpu())
      return false;
    if (&tensor != &first && !(tensor.shape() == first.shape())) return false;
  }
  return domain_dtype(op, first.dtype()) == first.dtype() &&
         (op.domain != Domain::as_bool || first.dtype() == DType::boolean);
}

void run_dense(const LocalTensor& target, const MapOperator& op, Operands operands,
               const MapNumbers& numbers) {
  const ShapesOnly shapes_only = shapes_only_for(target.dtype());
  const DType dtype = operands[0].tensor().dtype();
  DenseMap dense{target.data(),
                 {},
                 static_cast<int>(operands.size()),
                 static_cast<std::int64_t>(item_size(dtype)),
                 static_cast<std::int64_t>(item_size(target.dtype()))};
  for (std::size_t k = 0; k < operands.size(); ++k) dense.inputs[k] = operands[k].tensor().data();
  map_dense(dense, target.numel(), dense_run(op, dtype), numbers);
}

struct AddressRange {
  const char* begin;
  const char* end;
};

AddressRange addresses_of(const LocalTensor& tensor) {
  const auto size = static_cast<std::int64_t>(item_size(tensor.dtype()));
  const char* const data = static_cast<const char*>(tensor.data());
  AddressRange range{data, data + size};
  for (std::size_t d = 0; d < tensor.shape().size(); ++d) {
    const std::int64_t way = (tensor.shape()[d] - 1) * tensor.strides()[d] * size;
    (way < 0 ? range.begin : range.end) += way;
  }
  return range;
}

bool is_same_view(const LocalTensor& a, const LocalTensor& b) {
  return a.data() == b.data() && a.dtype() == b.dtype() && a.shape() == b.shape() &&
         a.strides() == b.strides();
}

/// Elements that are written before they are read.
bool disturbs(const LocalTensor& target, const LocalTensor& input) {
  if (target.numel() == 0 || input.numel() == 0 || is_same_view(target, input)) return false;
  const AddressRange a = addresses_of(target);
  const AddressRange b = addresses_of(input);
  return a.begin < b.end && b.begin < a.end;
}

void require_writable(const MapOperator& op, const LocalTensor& target) {
  for (std::size_t d = 0; d < target.shape().size(); ++d) {
    if (target.shape()[d] > 1 && target.strides()[d] == 0) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("{}_ would write to an expanded tensor of shape {}", op.name,
                              shape_to_string(target.shape())),
                  "several of its elements are one place in memory", "clone() it first");
    }
  }
}

/// As torch.can_cast: neither the fraction nor the number may get lost.
void require_castable(const MapOperator& op, const LocalTensor& target, DType result) {
  const bool loses_fraction = is_floating_point(result) && !is_floating_point(target.dtype());
  const bool loses_number = result != DType::boolean && target.dtype() == DType::boolean;
  if (!loses_fraction && !loses_number) return;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("{}_ gives {}, which a {} tensor cannot hold", op.name,
                          dtype_name(result), dtype_name(target.dtype())),
              "", fmt::format("{}() without '_'", op.name));
}

}  // namespace

void require_host(std::string_view operation, const LocalTensor& tensor) {
  if (tensor.device().is_cpu()) return;
  throw Error(ErrorCode::kUnavailable, fmt::format("{} has no CUDA kernel yet", operation),
              fmt::format("a tensor is on {}", tensor.device().to_string()),
              "to(kCpu) before, and to(device) behind");
}

DType MapPlan::through_of(const Operand& operand, std::size_t k) const {
  // As in PyTorch, a single factor or divisor meets half types in float, unrounded.
  const bool single = operand.is_number() || operand.tensor().numel() == 1;
  const bool keeps_precision = keeps_single_precision && k > 0 && single;
  return keeps_precision || compute == DType::boolean ? compute : common;
}

DType common_dtype(std::string_view, Operands operands) {
  TypedOperand all = operands[0].typed();
  for (std::size_t k = 1; k < operands.size(); ++k) {
    const TypedOperand next = operands[k].typed();
    all.dtype = result_type(all, next);
    all.weight = std::max(all.weight, next.weight);
  }
  return all.dtype;
}

LocalTensor map(const MapOperator& op, Operands operands, const MapNumbers& numbers) {
  if (is_dense_call(op, operands)) {
    const LocalTensor& model = operands[0].tensor();
    LocalTensor result =
        empty(model.shape(), {op.result == MapResult::boolean ? DType::boolean : model.dtype()});
    run_dense(result, op, operands, numbers);
    return result;
  }
  const LocalTensor& first = first_tensor(op, operands);
  const MapPlan plan = plan_of(op, operands);
  const TensorOptions options{
      .dtype = op.result == MapResult::boolean ? DType::boolean : plan.result(),
      .device = common_device(op.name, operands)};
  LocalTensor result =
      operands.size() == 1 ? empty(first.shape(), options) : empty(common_shape(operands), options);
  run_map(result, op, plan, operands, numbers);
  return result;
}

LocalTensor map_where(const LocalTensor& condition, const Operand& a, const Operand& b) {
  if (condition.dtype() != DType::boolean) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("where with a {} condition", dtype_name(condition.dtype())),
                "a condition is bool", "ne(condition, 0)");
  }
  const Operand operands[] = {condition, a, b};
  const MapPlan chosen = plan_of(kWhere, Operands(operands + 1, 2));
  const LocalTensor result =
      empty(common_shape(operands), {chosen.result(), common_device("where", operands)});
  if (!result.device().is_cpu()) {
    map_on_device(result, kWhere, chosen, operands, {});
    return result;
  }
  const ShapesOnly shapes_only = shapes_only_for(result.dtype());
  NumberElements elements;
  const MapOperand inputs[] = {MapOperand::of(condition, DType::boolean),
                               input_of(chosen, operands, 1, elements),
                               input_of(chosen, operands, 2, elements)};
  map_elements(result.shape(), MapOperand::of(result, chosen.result()), inputs,
               kWhere.runs.of(chosen.compute), {});
  return result;
}

const LocalTensor& map_into(const LocalTensor& target, const MapOperator& op, Operands operands,
                            const MapNumbers& numbers) {
  const MapPlan plan = plan_of(op, operands);
  require_castable(op, target, op.result == MapResult::boolean ? DType::boolean : plan.result());
  if (!(common_shape(operands) == target.shape())) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("{}_ gives shape {}, which is not that of the tensor, {}", op.name,
                    shape_to_string(common_shape(operands)), shape_to_string(target.shape())),
        "", fmt::format("{}() without '_'", op.name));
  }
  require_writable(op, target);
  require_device(op.name, target.device(), operands);
  std::array<LocalTensor, kMostOperands> copies;
  std::array<Operand, kMostOperands - 1> undisturbed{Operand(0), Operand(0), Operand(0)};
  for (std::size_t k = 0; k < operands.size(); ++k) {
    undisturbed[k] = operands[k];
    if (operands[k].is_number() || !disturbs(target, operands[k].tensor())) continue;
    copies[k] = operands[k].tensor().clone();
    undisturbed[k] = copies[k];
  }
  target.storage()->count_write();
  run_map(target, op, plan, Operands(undisturbed.data(), operands.size()), numbers);
  return target;
}

}  // namespace dtrun::tensors
