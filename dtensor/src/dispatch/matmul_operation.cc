#include "dispatch/matmul_operation.h"

#include <utility>

#include "dispatch/pointwise_operation.h"
#include "dtrun/base/error.h"

namespace dtrun::dtensor::sharding {
namespace {

using tensors::Shape;

/// Batch dims have the indices 0, 1, ...; these are the last ones.
constexpr int kRow = 1000;
constexpr int kInner = 1001;
constexpr int kColumn = 1002;

void check_shapes(const Shape& left, const Shape& right) {
  if (!left.empty() && !right.empty() &&
      left.back() == (right.size() == 1 ? right[0] : right[right.size() - 2])) {
    return;
  }
  throw base::Error(
      base::ErrorCode::kInvalidArgument,
      "cannot multiply matrices of shapes " + tensors::shape_to_string(left) + " and " +
          tensors::shape_to_string(right),
      left.empty() || right.empty() ? "a 0-dim tensor is no matrix" : "the inner sizes differ",
      left.empty() || right.empty()
          ? "mul() by a number"
          : "transpose() one, so that the last size of the first is the second's last but one");
}

Shape batch_of(const Shape& shape) {
  return shape.size() < 3 ? Shape{} : Shape(shape.begin(), shape.end() - 2);
}

}  // namespace

Operation matmul_operation(const Operand& left, const Operand& right, tensors::DType output_dtype) {
  check_shapes(left.shape, right.shape);
  // The batch dims broadcast as those of pointwise operations do.
  const Operation batch = pointwise_operation(
      {{batch_of(left.shape), left.dtype, {}}, {batch_of(right.shape), right.dtype, {}}},
      output_dtype);
  Operation operation{{left, right}, batch.output, batch.output_shape, output_dtype};
  Indices& left_indices = operation.inputs[0].indices = batch.inputs[0].indices;
  Indices& right_indices = operation.inputs[1].indices = batch.inputs[1].indices;
  if (left.shape.size() > 1) {
    left_indices.push_back(kRow);
    operation.output.push_back(kRow);
    operation.output_shape.push_back(left.shape[left.shape.size() - 2]);
  }
  left_indices.push_back(kInner);
  right_indices.push_back(kInner);
  if (right.shape.size() > 1) {
    right_indices.push_back(kColumn);
    operation.output.push_back(kColumn);
    operation.output_shape.push_back(right.shape.back());
  }
  operation.work = 2 * static_cast<double>(tensors::numel(operation.output_shape)) *
                   static_cast<double>(left.shape.back());
  return operation;
}

}  // namespace dtrun::dtensor::sharding
