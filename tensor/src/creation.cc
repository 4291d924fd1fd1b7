#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "cuda/kernels.h"
#include "dtrun/base/error.h"
#include "dtrun/tensor/ops.h"
#include "formulas/line.h"

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
                            shape_to_string(shape)),
                fmt::format("it has {} elements", numel(shape)), "a value for each element");
  }
  const LocalTensor whole = empty(shape, {.dtype = values_dtype});
  if (!values.empty()) std::memcpy(whole.data(), values.data(), whole.bytes());
  return whole.to(dtype);
}

/// @param count the shape's elements
std::size_t byte_count(const Shape& shape, std::int64_t count, DType dtype) {
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(count, item_size(dtype), &bytes)) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("a {} tensor of shape {} has more bytes than 64 bits count",
                            dtype_name(dtype), shape_to_string(shape)),
                "no machine has that much memory", "smaller sizes");
  }
  return bytes;
}

void require_more_than_two(const char* name, DType dtype) {
  if (dtype != DType::boolean) return;
  throw Error(ErrorCode::kInvalidArgument, fmt::format("{} of bool", name),
              "false and true are no sequence of numbers", "DType::u8, then to(DType::boolean)");
}

/// An end of a line of bytes: negative ones count back from 256, larger ones are none.
double whole_byte(double end) {
  const double whole = std::trunc(end);
  if (!(std::abs(whole) <= 255)) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("linspace of uint8 with an end of {}", end), "it is no byte",
                "DType::i32");
  }
  return whole < 0 ? whole + 256 : whole;
}

/// start + i * step for the part's i.
template <typename T>
LocalTensor sequence(T start, T step, SequencePart part, TensorOptions options) {
  const LocalTensor values = empty({part.count}, {kDTypeOf<T>, options.device});
  if (!options.device.is_cpu()) {
    if (part.count != 0)
      cuda::fill_sequence(values, static_cast<double>(start), static_cast<double>(step),
                          part.first);
  } else {
    T* const elements = values.data_as<T>();
    for (std::int64_t i = 0; i < part.count; ++i)
      elements[i] = start + static_cast<T>(part.first + i) * step;
  }
  return values.to(options.dtype);
}

}  // namespace

LocalTensor empty(const Shape& shape, TensorOptions options) {
  const std::int64_t count = numel(shape);
  const std::size_t bytes = byte_count(shape, count, options.dtype);
  return LocalTensor::dense(Storage::allocate(bytes, options.device), options.dtype, shape, count);
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

LocalTensor arange(std::int64_t n, TensorOptions options, std::optional<SequencePart> part) {
  require_more_than_two("arange", options.dtype);
  if (n < 0)
    throw Error(ErrorCode::kInvalidArgument, fmt::format("arange({}) is negative", n),
                "it counts elements", "arange() of 0 and more");
  return sequence<std::int64_t>(0, 1, part.value_or(SequencePart{0, n}), options);
}

std::int64_t arange_count(double start, double end, double step, DType dtype) {
  if (!is_floating_point(dtype)) {  // of integers only, as PyTorch's
    start = std::trunc(start);
    end = std::trunc(end);
    step = std::trunc(step);
  }
  const double count = std::ceil((end - start) / step);
  if (!(count >= 0 && count < 0x1p53)) {  // a step of 0 makes it NaN or infinite
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("arange from {} to {} by {} does not get there", start, end, step),
                "it counts by the step until it reaches the end",
                "a step towards the end, not 0; of integers one that is not a fraction");
  }
  return static_cast<std::int64_t>(count);
}

LocalTensor arange(double start, double end, double step, TensorOptions options,
                   std::optional<SequencePart> part) {
  require_more_than_two("arange", options.dtype);
  const SequencePart all{0, arange_count(start, end, step, options.dtype)};
  if (!is_floating_point(options.dtype)) {
    start = std::trunc(start);
    step = std::trunc(step);
  }
  return sequence<double>(start, step, part.value_or(all), options);
}

LocalTensor linspace(double start, double end, std::int64_t steps, TensorOptions options,
                     std::optional<SequencePart> part) {
  if (steps < 0) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("linspace of {} numbers", steps),
                "it counts elements", "steps of 0 and more");
  }
  require_more_than_two("linspace", options.dtype);
  if (options.dtype == DType::u8) {
    start = whole_byte(start);
    end = whole_byte(end);
  }
  const Line line = Line::between(start, end, steps);
  const auto [first, count] = part.value_or(SequencePart{0, steps});
  const LocalTensor values = empty({count}, {DType::f64, options.device});
  if (!options.device.is_cpu()) {
    cuda::fill_line(values, line, first);
  } else {
    double* const elements = values.data_as<double>();
    for (std::int64_t i = 0; i < count; ++i) elements[i] = line.at(first + i);
  }
  return values.to(options.dtype);
}

LocalTensor eye(std::int64_t rows, std::int64_t columns, TensorOptions options) {
  const LocalTensor square = zeros({rows, columns}, options);
  const std::int64_t length = std::min(rows, columns);
  LocalTensor(square.storage(), options.dtype, {length}, {columns + 1}).fill_(1);
  return square;
}

LocalTensor from_blob(void* data, const Shape& shape, TensorOptions options,
                      std::function<void()> release) {
  const std::size_t bytes = byte_count(shape, numel(shape), options.dtype);
  if (data == nullptr && bytes != 0) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("from_blob of no memory and shape {}", shape_to_string(shape)),
                "data is null", "the address of the elements; empty() makes some");
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
