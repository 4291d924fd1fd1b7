#include "dtrun/dtensor/ops/creation.h"

#include <utility>

#include "autograd/call.h"
#include "dtrun/dtensor/ops/elementwise.h"
#include "dtrun/tensor/dlpack.h"
#include "dtrun/tensor/npy.h"

namespace dtrun::dtensor {
namespace {

/// Of a's shape, dtype and layout; where a is Partial, whole, for nobody needs its numbers.
template <typename Make>
Tensor like(const Tensor& a, Make make) {
  const TensorOptions options{a.dtype(), a.device()};
  if (!a.is_distributed()) return Tensor(make(a.shape(), options));
  Spec spec = a.spec();
  Placements whole = without_partials(spec.placements());
  if (whole != spec.placements())
    spec = make_spec(spec.mesh(), std::move(whole), spec.shape(), spec.dtype(), spec.shard_order());
  LocalTensor local = make(spec.local_box().shape, options);
  return Tensor(std::move(spec), std::move(local));
}

}  // namespace

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
DLManagedTensor* to_dlpack(const Tensor& tensor) {
  if (!tensor.defined()) refuse_undefined("to_dlpack", 0);
  return tensors::to_dlpack(tensor);
}
Tensor from_dlpack(DLManagedTensor* managed) {
  return tensors::from_dlpack(managed);
}
void save_npy(const std::string& path, const Tensor& tensor) {
  if (!tensor.defined()) refuse_undefined("save_npy", 1);
  tensors::save_npy(path, tensor);
}
Tensor load_npy(const std::string& path) {
  return tensors::load_npy(path);
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

Tensor empty_like(const Tensor& a) {
  return like(a, [](const Shape& shape, TensorOptions o) { return tensors::empty(shape, o); });
}
Tensor zeros_like(const Tensor& a) {
  return like(a, [](const Shape& shape, TensorOptions o) { return tensors::zeros(shape, o); });
}
Tensor ones_like(const Tensor& a) {
  return full_like(a, 1);
}
Tensor full_like(const Tensor& a, Scalar value) {
  return like(
      a, [value](const Shape& shape, TensorOptions o) { return tensors::full(shape, value, o); });
}

}  // namespace dtrun::dtensor
