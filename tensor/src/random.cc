// randn and randn_block: which element of the endless sequence stands where.
#include <fmt/core.h>

#include <algorithm>

#include "copy_kernel.h"
#include "cuda/kernels.h"
#include "dtrun/base/error.h"
#include "dtrun/tensor/ops.h"
#include "normal_number.h"

namespace dtrun::tensors {
namespace {

using base::Error;
using base::ErrorCode;

/// Writes elements [first, first + count) of the endless sequence.
void fill_normal(char* target, DType dtype, RandomKey key, std::int64_t first, std::int64_t count) {
  constexpr std::int64_t kBlock = 512;
  double block[kBlock];
  const std::int64_t size = static_cast<std::int64_t>(item_size(dtype));
  const std::int64_t strides[] = {size, sizeof(double)};
  const RowKernel convert = copy_kernel(dtype, DType::f64);
  NormalPair pair{};
  for (std::int64_t start = 0; start < count; start += kBlock) {
    const std::int64_t length = std::min(kBlock, count - start);
    for (std::int64_t i = 0; i < length; ++i) {
      const std::int64_t index = first + start + i;
      const bool is_odd = index % 2 != 0;
      if (i == 0 || !is_odd) pair = normal_pair(key, static_cast<std::uint64_t>(index) / 2);
      block[i] = is_odd ? pair.odd : pair.even;
    }
    char* const operands[] = {target + start * size, reinterpret_cast<char*>(block)};
    convert(operands, strides, length);
  }
}

void check_block(const Shape& global_shape, const Shape& offsets, const Shape& shape) {
  bool fits = offsets.size() == global_shape.size() && shape.size() == global_shape.size();
  for (std::size_t d = 0; fits && d < shape.size(); ++d) {
    fits = offsets[d] >= 0 && shape[d] >= 0 && offsets[d] <= global_shape[d] - shape[d];
  }
  if (fits) return;
  throw Error(
      ErrorCode::kInvalidArgument,
      fmt::format("randn_block of shape {} at {} lies outside the global shape {}",
                  shape_to_string(shape), shape_to_string(offsets), shape_to_string(global_shape)));
}

/// The same numbers as on the cpu.
LocalTensor randn_on_device(const Shape& global_shape, const Shape& offsets, const Shape& shape,
                            RandomKey key, TensorOptions options) {
  const LocalTensor block = empty(shape, {DType::f64, options.device});
  if (block.numel() != 0) cuda::fill_normal(block, global_shape, offsets, key);
  return block.to(options.dtype);
}

}  // namespace

LocalTensor randn(const Shape& shape, RandomKey key, TensorOptions options) {
  return randn_block(shape, Shape(shape.size(), 0), shape, key, options);
}

LocalTensor randn_block(const Shape& global_shape, const Shape& offsets, const Shape& shape,
                        RandomKey key, TensorOptions options) {
  check_block(global_shape, offsets, shape);
  if (!options.device.is_cpu()) return randn_on_device(global_shape, offsets, shape, key, options);
  LocalTensor block = empty(shape, {.dtype = options.dtype});
  if (block.numel() == 0) return block;
  const Strides steps = contiguous_strides(global_shape);
  const std::int64_t row_size = shape.empty() ? 1 : shape.back();
  const std::int64_t rows = block.numel() / row_size;
  char* target = block.data_as<char>();
  for (std::int64_t row = 0; row < rows; ++row) {
    // The row's first element, counted in the whole tensor.
    std::int64_t first = shape.empty() ? 0 : offsets.back();
    std::int64_t rest = row;
    for (std::size_t d = shape.size() - (shape.empty() ? 0 : 1); d-- > 0;) {
      first += (offsets[d] + rest % shape[d]) * steps[d];
      rest /= shape[d];
    }
    fill_normal(target, options.dtype, key, first, row_size);
    target += row_size * static_cast<std::int64_t>(item_size(options.dtype));
  }
  return block;
}

}  // namespace dtrun::tensors
