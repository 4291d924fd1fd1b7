// Reduces torch.matmul's shapes to products of two matrices, and adds biases.
#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "blas.h"
#include "cuda/matmul.h"
#include "device_product.h"
#include "dtrun/base/check.h"
#include "dtrun/base/error.h"
#include "dtrun/tensor/ops.h"
#include "kernels/vector_registers.h"
#include "loops/thread_pool.h"
#include "onednn.h"
#include "require.h"

namespace dtrun::tensors {
namespace {

using base::Error;
using base::ErrorCode;

/// Of one product of a BLAS, which counts them in an int.
constexpr std::int64_t kMostRows = std::numeric_limits<int>::max();

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
    refuse(a, b, fmt::format("{} columns do not meet {} rows", a.size(-1), inner),
           "transpose(-2, -1) of one of them, or reshape()");
  }
  // Rows are cut; integers and halves have products of their own, or are brought block by block.
  const bool cuts_rows = a.device().is_cpu();
  const bool cuts_all = cuts_rows && a.dtype() != DType::f32 && a.dtype() != DType::f64;
  const auto too_long = [](std::int64_t size) { return size > kMostRows; };
  const auto last_dims = b.shape().end() - std::min(b.dim(), 2);
  if ((!cuts_all && std::any_of(last_dims, b.shape().end(), too_long)) ||
      (!cuts_rows && a.dim() > 1 && too_long(a.size(-2)))) {
    refuse(a, b, "BLAS counts rows and columns in 31 bits");
  }
}

/// A layout that multiply_matrices accepts, or a contiguous copy.
LocalTensor prepared(const LocalTensor& tensor) {
  if (is_floating_point(tensor.dtype()) && is_blas_layout(matrix_of(tensor))) return tensor;
  return tensor.contiguous();
}

/// Many rows times a matrix whose columns lie in runs, such as a layer's transposed weights. With
/// AVX-512 oneDNN takes up to a fifth longer for it than for rows in runs; to turn them costs a
/// hundredth. With AVX2 it takes as long for either.
bool is_worth_turning(const LocalTensor& a, const LocalTensor& b) {
  constexpr std::int64_t kLeastRows = 512;
  return b.dtype() == DType::f32 && b.device().is_cpu() && b.dim() == 2 && a.dim() == 2 &&
         a.size(0) >= kLeastRows && a.size(0) >= 2 * b.size(1) && b.strides()[1] > 1 &&
         b.strides()[0] == 1 && vector_registers() == VectorRegisters::avx512 &&
         onednn() != nullptr;
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

/// The term that is added to a product.
struct Sum {
  std::optional<LocalTensor> tensor;  ///< of the result's shape
  ProductSum factors;
};

/// The offsets of a batch's matrices, in elements.
class BatchOffsets {
 public:
  BatchOffsets(const LocalTensor& tensor) : tensor_(tensor) {}
  std::int64_t of(std::int64_t index) const {
    std::int64_t offset = 0;
    for (std::size_t d = tensor_.shape().size() - 2; d-- > 0;) {
      offset += index % tensor_.shape()[d] * tensor_.strides()[d];
      index /= tensor_.shape()[d];
    }
    return offset;
  }

 private:
  const LocalTensor& tensor_;
};

MatrixView moved(MatrixView matrix, std::int64_t bytes) {
  matrix.data = static_cast<const std::byte*>(matrix.data) + bytes;
  return matrix;
}

ProductForm form_of(const Sum& sum) {
  ProductForm form{.alpha = sum.factors.alpha, .beta = sum.factors.beta};
  if (!sum.tensor) return form;
  const MatrixView addend = matrix_of(*sum.tensor);
  form.addend = addend.data;
  form.row_stride = addend.row_stride;
  form.column_stride = addend.columns == 1 ? 0 : addend.column_stride;
  return form;
}

/// multiply_matrices of however many rows: a product for each kMostRows of them.
void multiply_rows(DType dtype, const MatrixView& left, const MatrixView& right, void* result,
                   const ProductForm& form) {
  const auto item = static_cast<std::int64_t>(item_size(dtype));
  for (std::int64_t first = 0; first < left.rows; first += kMostRows) {
    MatrixView rows = moved(left, first * left.row_stride * item);
    rows.rows = std::min(kMostRows, left.rows - first);
    ProductForm own = form;
    if (form.has_addend()) {
      own.addend = static_cast<const std::byte*>(form.addend) + first * form.row_stride * item;
    }
    multiply_matrices(dtype, rows, right,
                      static_cast<std::byte*>(result) + first * right.columns * item, own);
  }
}

/// Many or small products are distributed to the threads whole; few large ones are cut.
void multiply_batches(const LocalTensor& a, const LocalTensor& b, const LocalTensor& result,
                      const Sum& sum) {
  const auto item = static_cast<std::int64_t>(item_size(a.dtype()));
  const MatrixView left = matrix_of(a), right = matrix_of(b);
  const std::int64_t size = left.rows * right.columns;
  const std::int64_t count = result.numel() / size;
  const ProductForm form = form_of(sum);
  const BatchOffsets of_a(a), of_b(b);
  const auto multiply_range = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      ProductForm own = form;
      if (sum.tensor) {
        own.addend =
            static_cast<const std::byte*>(form.addend) + BatchOffsets(*sum.tensor).of(i) * item;
      }
      multiply_rows(a.dtype(), moved(left, of_a.of(i) * item), moved(right, of_b.of(i) * item),
                    static_cast<std::byte*>(result.data()) + i * size * item, own);
    }
  };
  constexpr std::int64_t kMany = 8, kWorth = 64 * 64 * 64;
  const std::int64_t products = std::max<std::int64_t>(1, size * left.columns);
  if (count < kMany && products >= kWorth) return multiply_range(0, count);
  parallel_for(count, std::max<std::int64_t>(1, kWorth / products), multiply_range);
}

/// The sum as kernels read it: rows in runs, or of one number each.
LocalTensor prepared_sum(const LocalTensor& sum) {
  const bool is_ready = sum.size(-1) == 1 || sum.strides().back() == 0 || sum.strides().back() == 1;
  return is_ready ? sum : sum.contiguous();
}

LocalTensor multiply_on_device(const LocalTensor& a, const LocalTensor& b, LocalTensor result,
                               const Sum& sum) {
  const Scalar alpha = sum.factors.alpha, beta = sum.factors.beta;
  if (is_floating_point(result.dtype())) {
    if (sum.tensor) result.copy_(*sum.tensor);
    cuda::multiply_batches(a, b, result, {alpha, sum.tensor ? beta : Scalar(0)});
    return result;
  }
  // The kernel of integers cannot add a term; it is added afterwards.
  cuda::multiply_batches(a, b, result, {1, 0});
  const auto whole = [](Scalar factor) {
    return factor.is_floating() ? Scalar(convert_number<std::int64_t>(factor.to_double())) : factor;
  };
  result = mul(result, whole(alpha));
  return sum.tensor ? add(result, mul(*sum.tensor, whole(beta))) : result;
}

/// Both have two dims at least and one dtype that multiply_matrices takes.
/// @param dtype of the result: theirs; of halves on a device f32, too
LocalTensor multiply(const LocalTensor& a, const LocalTensor& b, Sum sum, DType dtype) {
  const Shape batch = broadcast_shapes(batch_of(a), batch_of(b));
  if (b.dim() == 2 && a.dim() > 2 && a.is_contiguous()) {
    // Many small products become one large product.
    Shape shape = a.shape();
    shape.back() = b.size(1);
    const std::int64_t rows = numel(batch_of(a)) * a.size(-2);
    if (rows <= kMostRows) {
      if (sum.tensor) {
        // A term that is the same for all rows needs no copy.
        const bool is_row = sum.tensor->dim() <= 1;
        const Shape flat = {rows, b.size(1)};
        sum.tensor = is_row ? sum.tensor->expand(flat) : sum.tensor->expand(shape).reshape(flat);
      }
      return multiply(a.view({rows, a.size(-1)}), b, std::move(sum), dtype).view(shape);
    }
  }
  Shape shape = batch;
  shape.push_back(a.size(-2));
  shape.push_back(b.size(-1));
  LocalTensor result = empty(shape, {dtype, a.device()});
  if (result.numel() == 0) return result;
  if (sum.tensor) sum.tensor = prepared_sum(sum.tensor->expand(shape));
  const LocalTensor left = with_batch(prepared(a), batch);
  const LocalTensor right =
      with_batch(is_worth_turning(a, b) ? b.contiguous() : prepared(b), batch);
  if (result.device().is_cpu()) {
    multiply_batches(left, right, result, sum);
    return result;
  }
  return multiply_on_device(left, right, std::move(result), sum);
}

LocalTensor multiply_any(const LocalTensor& a, const LocalTensor& b, Sum sum) {
  const LocalTensor left = a.dim() == 1 ? a.unsqueeze(0) : a;
  const LocalTensor right = b.dim() == 1 ? b.unsqueeze(1) : b;
  LocalTensor result = multiply(left, right, std::move(sum), a.dtype());
  if (b.dim() == 1) result = result.squeeze(-1);
  if (a.dim() == 1) result = result.squeeze(b.dim() == 1 ? -1 : -2);
  return result;
}

}  // namespace

LocalTensor matmul(const LocalTensor& a, const LocalTensor& b) {
  check(a, b);
  return multiply_any(a, b, {std::nullopt, {.beta = 0}});
}

LocalTensor device_product(const LocalTensor& a, const LocalTensor& b, double factor) {
  DT_CHECK(!a.device().is_cpu() && is_floating_point(a.dtype()) && a.dim() > 1 && b.dim() > 1);
  check(a, b);
  const DType dtype = a.dtype() == DType::f64 ? DType::f64 : DType::f32;
  return multiply(a, b, {std::nullopt, {.beta = 0, .alpha = factor}}, dtype);
}

LocalTensor add_matmul(const LocalTensor& sum, const LocalTensor& a, const LocalTensor& b,
                       ProductSum factors) {
  check(a, b);
  require_one_device("add_matmul", a, sum);
  if (b.dim() == 1) refuse(a, b, "add_matmul adds to matrices", "unsqueeze(1) the right one");
  if (sum.dtype() != a.dtype()) {
    refuse(a, b, fmt::format("the dtypes differ: it is added to {}", dtype_name(sum.dtype())),
           "to() one of them");
  }
  require_fits("add_matmul", factors.alpha, a.dtype());
  require_fits("add_matmul", factors.beta, a.dtype());
  // As in PyTorch, a factor of 0 suppresses nan and inf of its term.
  if (factors.beta.to_double() == 0) return multiply_any(a, b, {std::nullopt, factors});
  return multiply_any(a, b, {sum, factors});
}

}  // namespace dtrun::tensors
