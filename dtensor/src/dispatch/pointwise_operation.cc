#include "dispatch/pointwise_operation.h"

#include <utility>

namespace dtrun::dtensor::sharding {

Operation pointwise_operation(const std::vector<Operand>& inputs, tensors::DType output_dtype) {
  Operation operation{inputs, {}, {}, output_dtype};
  for (const Operand& input : inputs) {
    operation.output_shape = tensors::broadcast_shapes(operation.output_shape, input.shape);
  }
  const tensors::Shape& result = operation.output_shape;
  for (std::size_t d = 0; d < result.size(); ++d) operation.output.push_back(static_cast<int>(d));
  for (Operand& input : operation.inputs) {
    const std::size_t missing = result.size() - input.shape.size();
    input.indices.clear();
    for (std::size_t d = 0; d < input.shape.size(); ++d) {
      const bool stretched = input.shape[d] != result[d + missing];
      input.indices.push_back(stretched ? kBroadcast : static_cast<int>(d + missing));
    }
  }
  return operation;
}

}  // namespace dtrun::dtensor::sharding
