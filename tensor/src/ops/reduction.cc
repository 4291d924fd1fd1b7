#include <fmt/core.h>

#include "cuda/kernels.h"
#include "dtrun/base/error.h"
#include "dtrun/tensor/ops.h"
#include "kernels/equality_kernel.h"
#include "kernels/sum_kernel.h"
#include "loops/strided_loop.h"
#include "require.h"

namespace dtrun::tensors {
namespace {

using base::Error;
using base::ErrorCode;

/// Which dims are reduced; all of them where none is named, as PyTorch reads it.
std::vector<bool> marked_dims(const std::vector<int>& dims, std::size_t rank) {
  std::vector<bool> marked(rank, dims.empty());
  for (const int dim : dims) {
    if (rank == 0 && (dim == 0 || dim == -1)) continue;
    const std::size_t d = static_cast<std::size_t>(normalize_dim(dim, rank));
    if (marked[d]) {
      throw Error(ErrorCode::kInvalidArgument, fmt::format("sum was given dim {} twice", d));
    }
    marked[d] = true;
  }
  return marked;
}

}  // namespace

LocalTensor sum(const LocalTensor& a) {
  return sum(a, {});
}

LocalTensor sum(const LocalTensor& a, const std::vector<int>& dims, bool keepdim) {
  const std::vector<bool> reduced = marked_dims(dims, a.shape().size());
  std::vector<int> order;
  Shape shape;
  std::int64_t row_size = 1;
  for (std::size_t d = 0; d < reduced.size(); ++d) {
    if (!reduced[d]) order.push_back(static_cast<int>(d));
    if (reduced[d]) row_size *= a.shape()[d];
    if (!reduced[d] || keepdim) shape.push_back(reduced[d] ? 1 : a.shape()[d]);
  }
  for (std::size_t d = 0; d < reduced.size(); ++d) {
    if (reduced[d]) order.push_back(static_cast<int>(d));
  }
  // What is summed lies in one run per result, so that every layout adds in the same order.
  const LocalTensor rows = a.permute(order).contiguous();
  LocalTensor result = empty(shape, {sum_dtype(a.dtype()), a.device()});
  if (a.device().is_cpu()) {
    sum_rows(a.dtype(), result.data(), rows.data(), result.numel(), row_size);
  } else {
    cuda::sum_rows(result, rows, row_size);
  }
  return result;
}

bool equal(const LocalTensor& a, const LocalTensor& b) {
  require_one_device("equal", a, b);
  if (a.shape() != b.shape()) return false;
  const DType dtype = promote_types(a.dtype(), b.dtype());
  const LocalTensor left = a.to(dtype);
  const LocalTensor right = b.to(dtype);
  if (!a.device().is_cpu()) {
    const LocalTensor flag = ones({1}, {DType::u8, a.device()});
    cuda::clear_if_different(flag, left, right);
    return flag.item() != 0;
  }
  std::uint8_t all_equal = 1;
  const LoopOperand operands[] = {
      {&all_equal, Strides(a.shape().size(), 0), 1}, LoopOperand::of(left), LoopOperand::of(right)};
  for_each_row(a.shape(), operands, all_equal_kernel(dtype));
  return all_equal != 0;
}

}  // namespace dtrun::tensors
