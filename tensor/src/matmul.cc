// torch.matmul's shapes, brought down to products of two matrices.
#include <fmt/core.h>

#include <algorithm>
#include <limits>

#include "blas.h"
#include "cuda/matmul.h"
#include "dtrun/base/error.h"
#include "dtrun/tensor/ops.h"
#include "require.h"

namespace dtrun::tensors {
namespace {

using base::Error;
using base::ErrorCode;

[[noreturn]] void refuse(const LocalTensor& a, const LocalTensor& b, std::string why,
                         std::string remedy = {}) {
  throw Error(
      ErrorCode::kInvalidArgument,
      fmt::format("matmul of {} {} and {} {}", dtype_name(a.dtype()), shape_to_string(a.shape()),
                  dtype_name(b.dtype()), shape_to_string(b.shape())),
      std::move(why), std::move(remedy));
}

void check(const LocalTensor& a, const LocalTensor& b) {
  require_one_device("matmul", a, b);
  if (a.dim() == 0 || b.dim() == 0) refuse(a, b, "both need a dim at least", "mul()");
  if (a.dtype() != b.dtype()) refuse(a, b, "the dtypes differ", "to() one of them");
  if (a.dtype() == DType::boolean) refuse(a, b, "bool has no products", "to(DType::i64)");
  const std::int64_t inner = b.size(b.dim() == 1 ? 0 : -2);
  if (a.size(-1) != inner) {
    refuse(a, b, fmt::format("{} columns do not meet {} rows", a.size(-1), inner));
  }
  constexpr std::int64_t kMax = std::numeric_limits<int>::max();
  const auto too_long = [](std::int64_t size) { return size > kMax; };
  if (std::any_of(a.shape().end() - std::min(a.dim(), 2), a.shape().end(), too_long) ||
      std::any_of(b.shape().end() - std::min(b.dim(), 2), b.shape().end(), too_long)) {
    refuse(a, b, "BLAS counts rows and columns in 31 bits");
  }
}

/// A layout that multiply_matrices takes.
LocalTensor prepared(const LocalTensor& tensor) {
  if (is_floating_point(tensor.dtype()) && is_blas_layout(matrix_of(tensor))) return tensor;
  return tensor.contiguous();
}

Shape batch_of(const LocalTensor& tensor) {
  return Shape(tensor.shape().begin(), tensor.shape().end() - 2);
}

LocalTensor with_batch(const LocalTensor& tensor, const Shape& batch) {
  Shape shape = batch;
  shape.push_back(tensor.size(-2));
  shape.push_back(tensor.size(-1));
  return tensor.expand(shape);
}

/// Walks the batch dims of all three in step.
void multiply_batches(const LocalTensor& a, const LocalTensor& b, const LocalTensor& result) {
  if (!result.device().is_cpu()) return cuda::multiply_batches(a, b, result);
  if (result.dim() == 2) {
    multiply_matrices(a.dtype(), matrix_of(a), matrix_of(b), result.data());
    return;
  }
  for (std::int64_t i = 0; i < result.size(0); ++i) multiply_batches(a[i], b[i], result[i]);
}

/// Both have two dims at least and one dtype that multiply_matrices takes.
LocalTensor multiply(const LocalTensor& a, const LocalTensor& b) {
  if (b.dim() == 2 && a.dim() > 2 && a.is_contiguous()) {
    // Many small products are one large one.
    Shape shape = a.shape();
    shape.back() = b.size(1);
    const std::int64_t rows = numel(batch_of(a)) * a.size(-2);
    if (rows <= std::numeric_limits<int>::max()) {
      return multiply(a.view({rows, a.size(-1)}), b).view(shape);
    }
  }
  const Shape batch = broadcast_shapes(batch_of(a), batch_of(b));
  Shape shape = batch;
  shape.push_back(a.size(-2));
  shape.push_back(b.size(-1));
  LocalTensor result = empty(shape, {a.dtype(), a.device()});
  if (result.numel() == 0) return result;
  multiply_batches(with_batch(prepared(a), batch), with_batch(prepared(b), batch), result);
  return result;
}

}  // namespace

LocalTensor matmul(const LocalTensor& a, const LocalTensor& b) {
  check(a, b);
  const LocalTensor left = a.dim() == 1 ? a.unsqueeze(0) : a;
  const LocalTensor right = b.dim() == 1 ? b.unsqueeze(1) : b;
  LocalTensor result = multiply(left, right);
  if (b.dim() == 1) result = result.squeeze(-1);
  if (a.dim() == 1) result = result.squeeze(b.dim() == 1 ? -1 : -2);
  return result;
}

}  // namespace dtrun::tensors
