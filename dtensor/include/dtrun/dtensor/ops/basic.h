// Operations on local and distributed tensors. Each operator's sharding rules (src/ops) choose the
// output placements. Inputs are redistributed where the cheapest rule needs it. All throw Error
// kInvalidArgument that names the shapes, dtypes, devices or meshes that do not fit.
#pragma once

#include <concepts>

#include "dtrun/dtensor/autograd/tensor.h"

namespace dtrun::dtensor {

// Pointwise: shapes broadcast and dtypes promote as in PyTorch.
Tensor add(const Tensor& a, const Tensor& b);
Tensor add(const Tensor& a, Scalar b);
Tensor sub(const Tensor& a, const Tensor& b);
Tensor sub(const Tensor& a, Scalar b);
Tensor sub(Scalar a, const Tensor& b);
Tensor mul(const Tensor& a, const Tensor& b);
Tensor mul(const Tensor& a, Scalar b);
Tensor div(const Tensor& a, const Tensor& b);
Tensor div(const Tensor& a, Scalar b);
Tensor div(Scalar a, const Tensor& b);
Tensor neg(const Tensor& a);

// Reductions. No dims: over all of them.
Tensor sum(const Tensor& a);
Tensor sum(const Tensor& a, const std::vector<int>& dims, bool keepdim = false);
Tensor mean(const Tensor& a);
Tensor mean(const Tensor& a, const std::vector<int>& dims, bool keepdim = false);
// The same of a.to(dtype), in that dtype: torch's keyword of that name.
Tensor sum(const Tensor& a, const std::vector<int>& dims, bool keepdim, DType dtype);
Tensor mean(const Tensor& a, const std::vector<int>& dims, bool keepdim, DType dtype);
/// A template, so that sum(a, {}) means no dims.
Tensor sum(const Tensor& a, std::same_as<DType> auto dtype) {
  return sum(a, {}, false, dtype);
}
Tensor mean(const Tensor& a, std::same_as<DType> auto dtype) {
  return mean(a, {}, false, dtype);
}
/// Sums `a` over the dims in which `shape` was broadcast to a's shape: the gradient of a broadcast.
Tensor sum_to(const Tensor& a, const Shape& shape);

// Joining and splitting.
Tensor cat(const Tensors& tensors, int dim = 0);
Tensor stack(const Tensors& tensors, int dim = 0);
/// Pieces of split_size along dim, the last one smaller; views.
Tensors split(const Tensor& a, std::int64_t split_size, int dim = 0);
Tensors split(const Tensor& a, const std::vector<std::int64_t>& sizes, int dim = 0);
/// torch.chunk: as many pieces of equal size as fit, the last one smaller. They may be fewer than
/// `chunks`: 6 elements in 4 are 2, 2 and 2. No elements are `chunks` empty pieces.
Tensors chunk(const Tensor& a, int chunks, int dim = 0);
/// Same shape and same elements, NaN equal to nothing; different dtypes promote. Collective where
/// one is distributed.
bool equal(const Tensor& a, const Tensor& b, Tensor::Site site = Tensor::Site::current());

/// torch.matmul's shapes: 1-D, 2-D and batched.
Tensor matmul(const Tensor& a, const Tensor& b);

inline Tensor operator+(const Tensor& a, const Tensor& b) {
  return add(a, b);
}
inline Tensor operator+(const Tensor& a, Scalar b) {
  return add(a, b);
}
inline Tensor operator+(Scalar a, const Tensor& b) {
  return add(b, a);
}
inline Tensor operator-(const Tensor& a, const Tensor& b) {
  return sub(a, b);
}
inline Tensor operator-(const Tensor& a, Scalar b) {
  return sub(a, b);
}
inline Tensor operator-(Scalar a, const Tensor& b) {
  return sub(a, b);
}
inline Tensor operator-(const Tensor& a) {
  return neg(a);
}
inline Tensor operator*(const Tensor& a, const Tensor& b) {
  return mul(a, b);
}
inline Tensor operator*(const Tensor& a, Scalar b) {
  return mul(a, b);
}
inline Tensor operator*(Scalar a, const Tensor& b) {
  return mul(b, a);
}
inline Tensor operator/(const Tensor& a, const Tensor& b) {
  return div(a, b);
}
inline Tensor operator/(const Tensor& a, Scalar b) {
  return div(a, b);
}
inline Tensor operator/(Scalar a, const Tensor& b) {
  return div(a, b);
}

}  // namespace dtrun::dtensor
