#include "dtrun/dtensor/ops/creation.h"

#include <algorithm>
#include <utility>

#include "autograd/call.h"
#include "autograd/deferred.h"
#include "autograd/named_call.h"
#include "dtrun/dtensor/ops/elementwise.h"
#include "dtrun/tensor/dlpack.h"
#include "dtrun/tensor/npy.h"
#include "ops/factory.h"

namespace dtrun::dtensor {
namespace {

tensors::SequencePart range_of(const Box& box) {
  return {box.offsets[0], box.shape[0]};
}

/// A box of the identity.
LocalTensor diagonal_of(const Box& box, TensorOptions options) {
  LocalTensor part = tensors::zeros(box.shape, options);
  const std::int64_t begin = std::max(box.offsets[0], box.offsets[1]);
  const std::int64_t end = std::min(box.offsets[0] + box.shape[0], box.offsets[1] + box.shape[1]);
  for (std::int64_t i = begin; i < end; ++i) part[i - box.offsets[0]][i - box.offsets[1]].fill_(1);
  return part;
}

/// What is wrong with its sizes is told as the factory's.
template <typename Make>
Tensor named_factory(std::string_view factory, Make make) {
  return named_call(factory, {}, [&]() -> Tensor { return make(); });
}

}  // namespace

Tensor empty(const Shape& shape, TensorOptions options) {
  // Only here: layers make their parameters by empty(), and nn::MetaScope defers those.
  if (Deferred::is_on()) [[unlikely]]
    return Deferred::make(shape, options);
  return named_factory("empty", [&] { return tensors::empty(shape, options); });
}
Tensor zeros(const Shape& shape, TensorOptions options) {
  return named_factory("zeros", [&] { return tensors::zeros(shape, options); });
}
Tensor ones(const Shape& shape, TensorOptions options) {
  return named_factory("ones", [&] { return tensors::ones(shape, options); });
}
Tensor full(const Shape& shape, Scalar value, TensorOptions options) {
  return named_factory("full", [&] { return tensors::full(shape, value, options); });
}
Tensor arange(std::int64_t n, TensorOptions options) {
  return named_factory("arange", [&] { return tensors::arange(n, options); });
}
Tensor arange(std::int64_t start, std::int64_t end, TensorOptions options) {
  return arange(static_cast<double>(start), static_cast<double>(end), 1, options);
}
Tensor arange(double start, double end, double step, TensorOptions options) {
  return named_factory("arange", [&] { return tensors::arange(start, end, step, options); });
}
Tensor linspace(double start, double end, std::int64_t steps, TensorOptions options) {
  return named_factory("linspace", [&] { return tensors::linspace(start, end, steps, options); });
}
Tensor eye(std::int64_t rows, TensorOptions options) {
  return named_factory("eye", [&] { return tensors::eye(rows, rows, options); });
}
Tensor eye(std::int64_t rows, std::int64_t columns, TensorOptions options) {
  return named_factory("eye", [&] { return tensors::eye(rows, columns, options); });
}
Tensor from_blob(void* data, const Shape& shape, TensorOptions options,
                 std::function<void()> release) {
  return named_factory(
      "from_blob", [&] { return tensors::from_blob(data, shape, options, std::move(release)); });
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
  return named_call("empty_like", {{"input", a}}, [&] {
    return make_like(a,
                     [](const Box& box, TensorOptions o) { return tensors::empty(box.shape, o); });
  });
}
Tensor zeros_like(const Tensor& a) {
  return named_call("zeros_like", {{"input", a}}, [&] {
    return make_like(a,
                     [](const Box& box, TensorOptions o) { return tensors::zeros(box.shape, o); });
  });
}
Tensor ones_like(const Tensor& a) {
  return named_call("ones_like", {{"input", a}}, [&] { return full_like(a, 1); });
}
Tensor full_like(const Tensor& a, Scalar value) {
  return named_call("full_like", {{"input", a}}, [&] {
    return make_like(
        a, [value](const Box& box, TensorOptions o) { return tensors::full(box.shape, value, o); });
  });
}

Tensor empty(const Shape& shape, const DeviceMesh& mesh, const Placements& placements, DType dtype,
             const ShardOrder& order) {
  return named_factory("empty", [&] {
    return make_parts(
        shape, mesh, placements, dtype, order,
        [](const Box& box, TensorOptions options) { return tensors::empty(box.shape, options); });
  });
}
Tensor full(const Shape& shape, Scalar value, const DeviceMesh& mesh, const Placements& placements,
            DType dtype, const ShardOrder& order) {
  return named_factory("full", [&] {
    return make_parts(shape, mesh, placements, dtype, order,
                      [&](const Box& box, TensorOptions options) {
                        return tensors::full(box.shape, value, options);
                      });
  });
}
Tensor zeros(const Shape& shape, const DeviceMesh& mesh, const Placements& placements, DType dtype,
             const ShardOrder& order) {
  return named_factory("zeros", [&] { return full(shape, 0, mesh, placements, dtype, order); });
}
Tensor ones(const Shape& shape, const DeviceMesh& mesh, const Placements& placements, DType dtype,
            const ShardOrder& order) {
  return named_factory("ones", [&] { return full(shape, 1, mesh, placements, dtype, order); });
}

Tensor arange(std::int64_t n, const DeviceMesh& mesh, const Placements& placements, DType dtype,
              const ShardOrder& order) {
  return named_factory("arange", [&] {
    return make_parts({n}, mesh, placements, dtype, order,
                      [&](const Box& box, TensorOptions options) {
                        return tensors::arange(n, options, range_of(box));
                      });
  });
}
Tensor arange(double start, double end, double step, const DeviceMesh& mesh,
              const Placements& placements, DType dtype, const ShardOrder& order) {
  return named_factory("arange", [&] {
    const Shape shape = {tensors::arange_count(start, end, step, dtype)};
    return make_parts(shape, mesh, placements, dtype, order,
                      [&](const Box& box, TensorOptions options) {
                        return tensors::arange(start, end, step, options, range_of(box));
                      });
  });
}
Tensor linspace(double start, double end, std::int64_t steps, const DeviceMesh& mesh,
                const Placements& placements, DType dtype, const ShardOrder& order) {
  return named_factory("linspace", [&] {
    return make_parts({steps}, mesh, placements, dtype, order,
                      [&](const Box& box, TensorOptions options) {
                        return tensors::linspace(start, end, steps, options, range_of(box));
                      });
  });
}
Tensor eye(std::int64_t rows, std::int64_t columns, const DeviceMesh& mesh,
           const Placements& placements, DType dtype, const ShardOrder& order) {
  return named_factory("eye", [&] {
    return make_parts({rows, columns}, mesh, placements, dtype, order, diagonal_of);
  });
}

}  // namespace dtrun::dtensor
