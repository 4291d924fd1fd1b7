// The local operations, grouped by family. None changes its inputs unless its name ends in '_'. All
// throw Error kInvalidArgument for shapes, dtypes or devices that do not fit, naming both sides.
#pragma once

#include <initializer_list>
#include <optional>
#include <vector>

#include "dtrun/tensor/tensor.h"

namespace dtrun::tensors {

struct TensorOptions {
  DType dtype = DType::f32;
  Device device = kCpu;
};

// Creation (creation.cc)
Tensor empty(const Shape& shape, TensorOptions options = {});
Tensor zeros(const Shape& shape, TensorOptions options = {});
Tensor ones(const Shape& shape, TensorOptions options = {});
Tensor full(const Shape& shape, Scalar value, TensorOptions options = {});
/// 0, 1, ... n-1. As torch.arange, i64 unless the options say otherwise.
Tensor arange(std::int64_t n, TensorOptions options = {.dtype = DType::i64});
Tensor arange(double start, double end, double step, TensorOptions options);

/// Standard normal numbers keyed by seed and global element index (Philox 4x32-10 and Box-Muller):
/// element `index` of a tensor of `global_shape` is the same on every layout, to the last bit on
/// every machine. randn_block makes the block that starts at `offsets`. Made in f64 and converted;
/// integer dtypes truncate.
struct RandomKey {
  std::uint64_t seed = 0;
  std::uint64_t stream = 0;  ///< tells tensors of one seed apart
};
Tensor randn(const Shape& shape, RandomKey key, TensorOptions options = {});
Tensor randn_block(const Shape& global_shape, const Shape& offsets, const Shape& shape,
                   RandomKey key, TensorOptions options = {});
/// Row-major values with a shape. tensor({{1, 2}, {3, 4}}) is in literal.h.
Tensor tensor_from(const std::vector<double>& values, const Shape& shape, DType dtype);
Tensor tensor_from(const std::vector<std::int64_t>& values, const Shape& shape, DType dtype);

// Pointwise (pointwise.cc): broadcast and promote as PyTorch. Division of integers gives f32.
Tensor add(const Tensor& a, const Tensor& b);
Tensor sub(const Tensor& a, const Tensor& b);
Tensor mul(const Tensor& a, const Tensor& b);
Tensor div(const Tensor& a, const Tensor& b);
/// With a number: the tensor's dtype, unless the number is of a higher kind (bool, integer,
/// floating point) as it is written, not by its value: i64 * 2 is i64, i64 * 2.0 is f32.
Tensor add(const Tensor& a, Scalar b);
Tensor sub(const Tensor& a, Scalar b);
Tensor mul(const Tensor& a, Scalar b);
Tensor div(const Tensor& a, Scalar b);
Tensor sub(Scalar a, const Tensor& b);
Tensor div(Scalar a, const Tensor& b);
inline Tensor operator+(const Tensor& a, const Tensor& b) {
  return add(a, b);
}
inline Tensor operator-(const Tensor& a, const Tensor& b) {
  return sub(a, b);
}
inline Tensor operator*(const Tensor& a, const Tensor& b) {
  return mul(a, b);
}
inline Tensor operator/(const Tensor& a, const Tensor& b) {
  return div(a, b);
}
inline Tensor operator+(const Tensor& a, Scalar b) {
  return add(a, b);
}
inline Tensor operator-(const Tensor& a, Scalar b) {
  return sub(a, b);
}
inline Tensor operator*(const Tensor& a, Scalar b) {
  return mul(a, b);
}
inline Tensor operator/(const Tensor& a, Scalar b) {
  return div(a, b);
}
inline Tensor operator+(Scalar a, const Tensor& b) {
  return add(b, a);
}
inline Tensor operator-(Scalar a, const Tensor& b) {
  return sub(a, b);
}
inline Tensor operator*(Scalar a, const Tensor& b) {
  return mul(b, a);
}
inline Tensor operator/(Scalar a, const Tensor& b) {
  return div(a, b);
}

// Reductions (reduction.cc)
/// Integers and bool sum in i64, f16 and bf16 in f32 and round once. The order of the additions
/// depends on the number of elements only: the same result on every machine and layout.
Tensor sum(const Tensor& a);
Tensor sum(const Tensor& a, const std::vector<int>& dims, bool keepdim = false);
/// Same shape and same elements, NaN equal to nothing (torch.equal: different dtypes promote).
bool equal(const Tensor& a, const Tensor& b);

// Matrix (matmul.cc): torch.matmul's shapes: 1-D, 2-D and batched. OpenBLAS for f32 and f64.
Tensor matmul(const Tensor& a, const Tensor& b);

// Joining and splitting (view.cc)
Tensor cat(const std::vector<Tensor>& tensors, int dim = 0);
Tensor stack(const std::vector<Tensor>& tensors, int dim = 0);
/// Pieces of split_size along dim, the last one smaller; views.
std::vector<Tensor> split(const Tensor& a, std::int64_t split_size, int dim = 0);
std::vector<Tensor> split(const Tensor& a, const std::vector<std::int64_t>& sizes, int dim = 0);
/// torch.chunk's rule, but always `chunks` pieces: trailing ones may be empty.
std::vector<Tensor> chunk(const Tensor& a, int chunks, int dim = 0);

}  // namespace dtrun::tensors
