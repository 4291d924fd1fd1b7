// What happens before the loop of a pointwise operator: which dtype it computes in, the shape and
// place of its result, and what does not fit.
#pragma once

#include <span>

#include "dtrun/tensor/ops/operand.h"
#include "kernels/map_operators.h"

namespace dtrun::tensors {

using Operands = std::span<const Operand>;

/// @param operands one to three, one of them a tensor
LocalTensor map(const MapOperator& op, Operands operands, const MapNumbers& numbers = {});
/// Into a tensor, which is one of the operands as a rule.
const LocalTensor& map_into(const LocalTensor& target, const MapOperator& op, Operands operands,
                            const MapNumbers& numbers = {});

inline LocalTensor map(const MapOperator& op, const Operand& a) {
  return map(op, Operands(&a, 1));
}
inline LocalTensor map(const MapOperator& op, const Operand& a, const Operand& b) {
  const Operand operands[] = {a, b};
  return map(op, Operands(operands));
}
inline const LocalTensor& map_into(const LocalTensor& target, const MapOperator& op) {
  const Operand operand = target;
  return map_into(target, op, Operands(&operand, 1));
}
inline const LocalTensor& map_into(const LocalTensor& target, const MapOperator& op,
                                   const Operand& b) {
  const Operand operands[] = {target, b};
  return map_into(target, op, Operands(operands));
}

/// where(): the first operand is bool, whatever the others are.
LocalTensor map_where(const LocalTensor& condition, const Operand& a, const Operand& b);

/// Of tensors on a CUDA device. @throws Error kUnavailable: the operation has no kernel there
void require_host(std::string_view operation, const LocalTensor& tensor);

/// torch.result_type of all. @throws Error kInvalidArgument where a number does not fit it
DType common_dtype(std::string_view operation, Operands operands);

// device_arithmetic.cc
/// The four operations that have CUDA kernels.
bool has_device_kernel(const MapOperator& op);
LocalTensor map_on_device(const MapOperator& op, const Operand& a, const Operand& b);

}  // namespace dtrun::tensors
