#include "dtrun/dtensor/creation.h"

#include <utility>

#include "dtrun/tensor/npy.h"

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
Tensor linspace(double start, double end, std::int64_t steps, TensorOptions options) {
  return tensors::linspace(start, end, steps, options);
}
Tensor eye(std::int64_t rows, TensorOptions options) {
  return tensors::eye(rows, rows, options);
}
Tensor eye(std::int64_t rows, std::int64_t columns, TensorOptions options) {
  return tensors::eye(rows, columns, options);
}
Tensor from_blob(void* data, const Shape& shape, TensorOptions options,
                 std::function<void()> release) {
  return tensors::from_blob(data, shape, options, std::move(release));
}
void save_npy(const std::string& path, const Tensor& tensor) {
  tensors::save_npy(path, tensor);
}
Tensor load_npy(const std::string& path) {
  return tensors::load_npy(path);
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
