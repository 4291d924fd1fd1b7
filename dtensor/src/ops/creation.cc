#include "dtrun/dtensor/creation.h"

namespace dtrun::dtensor {

Tensor empty(const Shape& shape, TensorOptions options) {
  return tensors::empty(shape, options);
}
Tensor zeros(const Shape& shape, TensorOptions options) {
  return tensors::zeros(shape, options);
}
Tensor ones(const Shape& shape, TensorOptions options) {
  return tensors::ones(shape, options);
}
Tensor full(const Shape& shape, Scalar value, TensorOptions options) {
  return tensors::full(shape, value, options);
}
Tensor arange(std::int64_t n, TensorOptions options) {
  return tensors::arange(n, options);
}
Tensor arange(double start, double end, double step, TensorOptions options) {
  return tensors::arange(start, end, step, options);
}
Tensor randn(const Shape& shape, RandomKey key, TensorOptions options) {
  return tensors::randn(shape, key, options);
}
Tensor tensor_from(const std::vector<double>& values, const Shape& shape, DType dtype) {
  return tensors::tensor_from(values, shape, dtype);
}
Tensor tensor_from(const std::vector<std::int64_t>& values, const Shape& shape, DType dtype) {
  return tensors::tensor_from(values, shape, dtype);
}
Tensor tensor(std::initializer_list<TensorLiteral> items, LiteralOptions options) {
  return tensors::tensor(items, options);
}
Tensor tensor(const TensorLiteral& value, LiteralOptions options) {
  return tensors::tensor(value, options);
}

}  // namespace dtrun::dtensor
