// One operation: its rules choose the layouts, the planner's steps bring the inputs there, and the
// local operation runs on what this rank then holds.
#include "dtrun/dtensor/ops.h"

#include <utility>
#include <vector>

#include "dtrun/base/error.h"
#include "dtrun/tensor/ops.h"
#include "dtrun/tensor/result_type.h"
#include "redistribute.h"
#include "sharding/choice.h"
#include "sharding/matmul.h"
#include "sharding/pointwise.h"

namespace dtrun::dtensor {
namespace {

using sharding::Operation;

sharding::Operand operand_of(const DTensor& tensor) {
  return {tensor.shape(), tensor.dtype(), {}};
}

void check_meshes(const char* name, const DTensor& a, const DTensor& b) {
  if (a.device_mesh() == b.device_mesh()) return;
  throw base::Error(base::ErrorCode::kInvalidArgument,
                    std::string(name) + " of tensors on different meshes",
                    a.device_mesh().to_string() + " and " + b.device_mesh().to_string(),
                    "make both tensors on one mesh");
}

/// The operands' local tensors where the cheapest choice of the rules wants them, and the result's
/// spec.
struct Prepared {
  std::vector<LocalTensor> locals;
  Spec result;
};
Prepared prepare(const Operation& operation, const std::vector<sharding::AxisRule>& rules,
                 const std::vector<const DTensor*>& operands) {
  const DeviceMesh& mesh = operands[0]->device_mesh();
  std::vector<Layout> layouts;
  for (const DTensor* operand : operands) layouts.push_back(operand->spec().layout());
  const sharding::Choice choice =
      sharding::cheapest_choice(operation, rules, mesh.shape(), layouts);
  Prepared prepared;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    prepared.locals.push_back(redistribute_local({mesh, operands[i]->shape()}, layouts[i],
                                                 choice.inputs[i], operands[i]->to_local()));
  }
  prepared.result = make_spec(mesh, choice.output.placements, operation.output_shape,
                              operation.output_dtype, choice.output.order);
  return prepared;
}

tensors::TypedOperand typed(const DTensor& tensor) {
  return {tensor.dtype(), tensor.shape()};
}

Operation pointwise(const DTensor& a, const DTensor& b) {
  return sharding::pointwise_operation({operand_of(a), operand_of(b)},
                                       tensors::result_type(typed(a), typed(b)));
}

}  // namespace

DTensor add(const DTensor& a, const DTensor& b) {
  check_meshes("add", a, b);
  const Operation operation = pointwise(a, b);
  Prepared prepared = prepare(operation, sharding::additive_rules(operation), {&a, &b});
  LocalTensor local = tensors::add(prepared.locals[0], prepared.locals[1]);
  return DTensor(std::move(prepared.result), std::move(local));
}

DTensor mul(const DTensor& a, const DTensor& b) {
  check_meshes("mul", a, b);
  const Operation operation = pointwise(a, b);
  Prepared prepared = prepare(operation, sharding::multiplicative_rules(operation), {&a, &b});
  LocalTensor local = tensors::mul(prepared.locals[0], prepared.locals[1]);
  return DTensor(std::move(prepared.result), std::move(local));
}

DTensor mul(const DTensor& a, Scalar b) {
  const Operation operation =
      sharding::pointwise_operation({operand_of(a)}, tensors::result_type(typed(a), b));
  Prepared prepared = prepare(operation, sharding::multiplicative_rules(operation), {&a});
  LocalTensor local = tensors::mul(prepared.locals[0], b);
  return DTensor(std::move(prepared.result), std::move(local));
}

DTensor matmul(const DTensor& a, const DTensor& b) {
  check_meshes("matmul", a, b);
  if (a.dtype() != b.dtype()) {
    throw base::Error(base::ErrorCode::kInvalidArgument,
                      "matmul of " + a.spec().to_string() + " and " + b.spec().to_string(),
                      "the dtypes differ", "");
  }
  const Operation operation = sharding::matmul_operation(operand_of(a), operand_of(b), a.dtype());
  Prepared prepared = prepare(operation, sharding::matmul_rules(operation), {&a, &b});
  LocalTensor local = tensors::matmul(prepared.locals[0], prepared.locals[1]);
  return DTensor(std::move(prepared.result), std::move(local));
}

}  // namespace dtrun::dtensor
