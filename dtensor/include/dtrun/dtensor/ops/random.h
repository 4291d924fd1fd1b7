// Random tensors and dropout. Each call takes the next stream of the thread's random state
// (random_state.h). A number depends on the stream and on its index in the whole tensor, so that a
// tensor has the same values on one rank and on any mesh with any placements.
#pragma once

#include <concepts>
#include <optional>

#include "dtrun/dtensor/autograd/random_state.h"
#include "dtrun/dtensor/ops/creation.h"

namespace dtrun::dtensor {

// Local ones; with a key in creation.h.
Tensor randn(const Shape& shape, TensorOptions options = {});  ///< standard normal
Tensor rand(const Shape& shape, TensorOptions options = {});   ///< of [0, 1)
Tensor rand(const Shape& shape, RandomKey key, TensorOptions options = {});
// The sizes one by one: randn(2, 3).
template <std::integral... Sizes>
requires(sizeof...(Sizes) > 0) Tensor randn(Sizes... sizes) {
  return randn(Shape{static_cast<std::int64_t>(sizes)...});
}
template <std::integral... Sizes>
requires(sizeof...(Sizes) > 0) Tensor rand(Sizes... sizes) {
  return rand(Shape{static_cast<std::int64_t>(sizes)...});
}
/// Whole numbers of [low, high).
Tensor randint(std::int64_t low, std::int64_t high, const Shape& shape,
               TensorOptions options = {.dtype = DType::i64});
Tensor randint(std::int64_t low, std::int64_t high, const Shape& shape, RandomKey key,
               TensorOptions options = {.dtype = DType::i64});
/// 0, 1, ... n-1 in a random order.
Tensor randperm(std::int64_t n, TensorOptions options = {.dtype = DType::i64});
Tensor randperm(std::int64_t n, RandomKey key, TensorOptions options = {.dtype = DType::i64});

// On a mesh, without communication. The values are those of a local tensor with the same key.
Tensor randn(const Shape& shape, const DeviceMesh& mesh, const Placements& placements,
             DType dtype = DType::f32, const ShardOrder& order = {});
Tensor rand(const Shape& shape, const DeviceMesh& mesh, const Placements& placements,
            DType dtype = DType::f32, const ShardOrder& order = {});
Tensor randint(std::int64_t low, std::int64_t high, const Shape& shape, const DeviceMesh& mesh,
               const Placements& placements, DType dtype = DType::i64,
               const ShardOrder& order = {});
Tensor randperm(std::int64_t n, const DeviceMesh& mesh, const Placements& placements,
                DType dtype = DType::i64, const ShardOrder& order = {});
/// With a key of one's own; the random state stays as it is.
Tensor randn(const Shape& shape, RandomKey key, const DeviceMesh& mesh,
             const Placements& placements, DType dtype = DType::f32, const ShardOrder& order = {});
Tensor rand(const Shape& shape, RandomKey key, const DeviceMesh& mesh, const Placements& placements,
            DType dtype = DType::f32, const ShardOrder& order = {});

// Of a's shape, dtype, mesh, device and placements, but Replicate where `a` is Partial: as
// zeros_like() and its family in elementwise.h. No communication; the values are those of the
// functions above.
Tensor rand_like(const Tensor& a);
Tensor randn_like(const Tensor& a);
Tensor randint_like(const Tensor& a, std::int64_t low, std::int64_t high);

struct DropoutOptions {
  double p = 0.5;
  bool training = true;               ///< false: x as it is, and nothing is drawn
  std::optional<RandomKey> key = {};  ///< of the tensor as it is; not given: the next stream
};
/// Each element is 0 with probability p, else x / (1 - p). The mask is not stored; backward draws
/// it again. Of a plain tensor in a model that ranks share it is that of its part of the whole:
/// docs/training.md, Dropout. @throws Error kInvalidArgument for integers and for a p outside of
/// [0, 1]
Tensor dropout(const Tensor& x, const DropoutOptions& options = {});

}  // namespace dtrun::dtensor
