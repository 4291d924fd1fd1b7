#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "cuda/kernels.h"
#include "dtrun/base/error.h"
#include "dtrun/tensor/ops.h"

namespace dtrun::tensors {
namespace {

using base::Error;
using base::ErrorCode;

template <typename T>
LocalTensor from_values(const std::vector<T>& values, DType values_dtype, const Shape& shape,
                        DType dtype) {
  if (numel(shape) != static_cast<std::int64_t>(values.size())) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} values do not fill a tensor of shape {}", values.size(),
                            shape_to_string(shape)));
  }
  const LocalTensor whole = empty(shape, {.dtype = values_dtype});
  if (!values.empty()) std::memcpy(whole.data(), values.data(), whole.bytes());
  return whole.to(dtype);
}

std::size_t byte_count(const Shape& shape, DType dtype) {
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(numel(shape), item_size(dtype), &bytes)) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("a {} tensor of shape {} has more bytes than 64 bits count",
                            dtype_name(dtype), shape_to_string(shape)));
  }
  return bytes;
}

LocalTensor sequence_on_device(std::int64_t count, DType computed, double start, double step,
                               TensorOptions options) {
  const LocalTensor values = empty({count}, {computed, options.device});
  if (count != 0) cuda::fill_sequence(values, start, step);
  return values.to(options.dtype);
}

}  // namespace

LocalTensor empty(const Shape& shape, TensorOptions options) {
  const std::size_t bytes = byte_count(shape, options.dtype);
  return LocalTensor(Storage::allocate(bytes, options.device), options.dtype, shape,
                     contiguous_strides(shape));
}

LocalTensor zeros(const Shape& shape, TensorOptions options) {
  return full(shape, 0, options);
}

LocalTensor ones(const Shape& shape, TensorOptions options) {
  return full(shape, 1, options);
}

LocalTensor full(const Shape& shape, Scalar value, TensorOptions options) {
  return empty(shape, options).fill_(value);
}

LocalTensor arange(std::int64_t n, TensorOptions options) {
  if (n < 0) throw Error(ErrorCode::kInvalidArgument, fmt::format("arange({}) is negative", n));
  if (!options.device.is_cpu()) return sequence_on_device(n, DType::i64, 0, 1, options);
  std::vector<std::int64_t> values(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::int64_t>(i);
  return tensor_from(values, {n}, options.dtype);
}

LocalTensor arange(double start, double end, double step, TensorOptions options) {
  if (!is_floating_point(options.dtype)) {  // of integers only, as PyTorch's
    start = std::trunc(start);
    end = std::trunc(end);
    step = std::trunc(step);
  }
  const double count = std::ceil((end - start) / step);
  if (!(count >= 0 && count < 0x1p53)) {  // a step of 0 makes it NaN or infinite
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("arange from {} to {} by {} does not get there", start, end, step));
  }
  if (!options.device.is_cpu()) {
    return sequence_on_device(static_cast<std::int64_t>(count), DType::f64, start, step, options);
  }
  std::vector<double> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = start + static_cast<double>(i) * step;
  return tensor_from(values, {static_cast<std::int64_t>(count)}, options.dtype);
}

LocalTensor linspace(double start, double end, std::int64_t steps, TensorOptions options) {
  if (steps < 0) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("linspace of {} numbers", steps));
  }
  const Line line = Line::between(start, end, steps);
  if (!options.device.is_cpu()) {
    const LocalTensor values = empty({steps}, {DType::f64, options.device});
    cuda::fill_line(values, line);
    return values.to(options.dtype);
  }
  std::vector<double> values(static_cast<std::size_t>(steps));
  for (std::int64_t i = 0; i < steps; ++i) values[static_cast<std::size_t>(i)] = line.at(i);
  return tensor_from(values, {steps}, options.dtype);
}

LocalTensor eye(std::int64_t rows, std::int64_t columns, TensorOptions options) {
  const LocalTensor square = zeros({rows, columns}, options);
  const std::int64_t length = std::min(rows, columns);
  LocalTensor(square.storage(), options.dtype, {length}, {columns + 1}).fill_(1);
  return square;
}

LocalTensor from_blob(void* data, const Shape& shape, TensorOptions options,
                      std::function<void()> release) {
  const std::size_t bytes = byte_count(shape, options.dtype);
  if (data == nullptr && bytes != 0) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("from_blob of no memory and shape {}", shape_to_string(shape)));
  }
  return LocalTensor(Storage::wrap(data, bytes, options.device, std::move(release)), options.dtype,
                     shape, contiguous_strides(shape));
}

LocalTensor tensor_from(const std::vector<double>& values, const Shape& shape, DType dtype) {
  return from_values(values, DType::f64, shape, dtype);
}

LocalTensor tensor_from(const std::vector<std::int64_t>& values, const Shape& shape, DType dtype) {
  return from_values(values, DType::i64, shape, dtype);
}

}  // namespace dtrun::tensors
