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

/// In which dtypes a call runs.
struct MapPlan {
  DType common;   ///< of the operands
  DType compute;  ///< of the loop
  bool keeps_single_precision;

  DType result() const { return common; }
  /// What operand k is rounded to before it becomes `compute`.
  DType through_of(const Operand& operand, std::size_t k) const;
};

// device_map.cc
/// Where the result lies: a tensor of the cpu that has no dims is a number to tensors elsewhere.
/// @throws Error kInvalidArgument where the others lie on several devices
Device common_device(std::string_view operation, Operands operands);
/// @throws Error kInvalidArgument where an operand lies elsewhere and is no number there
void require_device(std::string_view operation, Device device, Operands operands);
/// The call's loop, on the target's device. @throws Error kUnavailable: it has no kernel there
void map_on_device(const LocalTensor& target, const MapOperator& op, const MapPlan& plan,
                   Operands operands, const MapNumbers& numbers);

}  // namespace dtrun::tensors
