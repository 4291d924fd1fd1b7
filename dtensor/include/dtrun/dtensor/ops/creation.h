// Creation of local and distributed tensors. Options and values are those of the local factories
// (dtrun/tensor/ops.h, literal.h).
#pragma once

#include <concepts>
#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

#include "dtrun/dtensor/autograd/tensor.h"
#include "dtrun/tensor/literal.h"
#include "dtrun/tensor/ops.h"

struct DLManagedTensor;

namespace dtrun::dtensor {

using tensors::LiteralOptions;
using tensors::RandomKey;
using tensors::TensorLiteral;
using tensors::TensorOptions;

// Local.
Tensor empty(const Shape& shape, TensorOptions options = {});
Tensor zeros(const Shape& shape, TensorOptions options = {});
Tensor ones(const Shape& shape, TensorOptions options = {});
// The sizes one by one: ones(2, 3).
template <std::integral... Sizes>
requires(sizeof...(Sizes) > 0) Tensor empty(Sizes... sizes) {
  return empty(Shape{static_cast<std::int64_t>(sizes)...});
}
template <std::integral... Sizes>
requires(sizeof...(Sizes) > 0) Tensor zeros(Sizes... sizes) {
  return zeros(Shape{static_cast<std::int64_t>(sizes)...});
}
template <std::integral... Sizes>
requires(sizeof...(Sizes) > 0) Tensor ones(Sizes... sizes) {
  return ones(Shape{static_cast<std::int64_t>(sizes)...});
}
Tensor full(const Shape& shape, Scalar value, TensorOptions options = {});
Tensor arange(std::int64_t n, TensorOptions options = {.dtype = DType::i64});
/// start, start + 1, ... below end.
Tensor arange(std::int64_t start, std::int64_t end, TensorOptions options = {.dtype = DType::i64});
Tensor arange(double start, double end, double step, TensorOptions options);
Tensor linspace(double start, double end, std::int64_t steps, TensorOptions options = {});
Tensor eye(std::int64_t rows, TensorOptions options = {});
Tensor eye(std::int64_t rows, std::int64_t columns, TensorOptions options = {});
Tensor from_blob(void* data, const Shape& shape, TensorOptions options = {},
                 std::function<void()> release = nullptr);
/// As tensors::to_dlpack and tensors::from_dlpack (dtrun/tensor/dlpack.h); no gradient.
DLManagedTensor* to_dlpack(const Tensor& tensor);
Tensor from_dlpack(DLManagedTensor* managed);
/// Local ones. @throws as tensors::save_npy, tensors::load_npy (dtrun/tensor/npy.h)
void save_npy(const std::string& path, const Tensor& tensor);
Tensor load_npy(const std::string& path);
Tensor randn(const Shape& shape, RandomKey key, TensorOptions options = {});
Tensor tensor_from(const std::vector<double>& values, const Shape& shape, DType dtype);
Tensor tensor_from(const std::vector<std::int64_t>& values, const Shape& shape, DType dtype);
Tensor tensor(std::initializer_list<TensorLiteral> items, LiteralOptions options = {});
Tensor tensor(const TensorLiteral& value, LiteralOptions options = {});

struct DistributeOptions {
  /// The rank whose data is taken, as group rank on every axis. -1: each rank takes its own data,
  /// without communication.
  int source_rank = 0;
  ShardOrder shard_order = {};
};
/// Distributes a local `tensor` that has the same shape and dtype on every rank. Collective: a
/// scatter on sharded axes, a broadcast on replicated ones. A Partial axis holds what
/// redistribute() to Partial gives.
Tensor distribute_tensor(const Tensor& tensor, const DeviceMesh& mesh, const Placements& placements,
                         DistributeOptions options = {},
                         Tensor::Site site = Tensor::Site::current());

// On a mesh: each rank makes its own part, without communication; on a mesh of CUDA devices on its
// current device. The values are those of the local factories, whatever the placements and the
// order in which axes cut a dim.
Tensor empty(const Shape& shape, const DeviceMesh& mesh, const Placements& placements,
             DType dtype = DType::f32, const ShardOrder& order = {});
Tensor zeros(const Shape& shape, const DeviceMesh& mesh, const Placements& placements,
             DType dtype = DType::f32, const ShardOrder& order = {});
Tensor ones(const Shape& shape, const DeviceMesh& mesh, const Placements& placements,
            DType dtype = DType::f32, const ShardOrder& order = {});
Tensor full(const Shape& shape, Scalar value, const DeviceMesh& mesh, const Placements& placements,
            DType dtype = DType::f32, const ShardOrder& order = {});

Tensor arange(std::int64_t n, const DeviceMesh& mesh, const Placements& placements,
              DType dtype = DType::i64, const ShardOrder& order = {});
Tensor arange(double start, double end, double step, const DeviceMesh& mesh,
              const Placements& placements, DType dtype = DType::f32, const ShardOrder& order = {});
Tensor linspace(double start, double end, std::int64_t steps, const DeviceMesh& mesh,
                const Placements& placements, DType dtype = DType::f32,
                const ShardOrder& order = {});
Tensor eye(std::int64_t rows, std::int64_t columns, const DeviceMesh& mesh,
           const Placements& placements, DType dtype = DType::f32, const ShardOrder& order = {});

}  // namespace dtrun::dtensor
