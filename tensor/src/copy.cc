// Everything that moves elements: copies, conversions, fills, and reading them out.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "copy_kernel.h"
#include "cuda/kernels.h"
#include "cuda/memory.h"
#include "dtrun/base/error.h"
#include "dtrun/tensor/ops.h"
#include "dtrun/tensor/shapes_only.h"
#include "element.h"
#include "kernels/transpose_kernel.h"
#include "loops/strided_loop.h"
#include "loops/thread_pool.h"
#include "require.h"

namespace dtrun::tensors {
namespace {

using base::Error;
using base::ErrorCode;

/// Writing through a view that repeats elements would leave the last writer's value.
void require_distinct_elements(std::string_view operation, const LocalTensor& target) {
  for (std::size_t d = 0; d < target.shape().size(); ++d) {
    if (target.shape()[d] > 1 && target.strides()[d] == 0) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("{} would write to an expanded tensor of shape {}", operation,
                              shape_to_string(target.shape())),
                  "several of its elements are one place in memory", "clone() it first");
    }
  }
}

bool same_view(const LocalTensor& a, const LocalTensor& b) {
  return a.storage() == b.storage() && a.offset() == b.offset() && a.dtype() == b.dtype() &&
         a.shape() == b.shape() && a.strides() == b.strides();
}

/// A matrix whose columns lie in runs.
struct Turned {
  std::int64_t rows, columns, column_stride;
};

/// How the target's elements lie in the source, which has the same shape, where squares can be
/// turned: the target is contiguous and of the same dtype.
std::optional<Turned> turned(const LocalTensor& target, const LocalTensor& source) {
  if (source.dim() != 2 || target.dtype() != source.dtype() || !target.is_contiguous()) return {};
  const std::int64_t rows = source.size(0), columns = source.size(1);
  const std::int64_t column_stride = source.strides()[1];
  if (rows < kTurnedSquare || columns < kTurnedSquare || source.strides()[0] != 1 ||
      column_stride < rows) {
    return {};
  }
  return Turned{rows, columns, column_stride};
}

/// Rows of the target. Squares are turned in registers; what is left of the rows, one by one.
template <typename Bits>
void copy_turned_rows(const Turned& source, const Bits* in, Bits* out, std::int64_t begin,
                      std::int64_t end) {
  // So many rows of the target are written together: their lines stay in the first cache.
  constexpr std::int64_t kBand = 32;
  const std::int64_t whole = source.columns / kTurnedSquare * kTurnedSquare;
  for (std::int64_t row = begin; row < end; row += kBand) {
    const std::int64_t count = std::min(kBand, end - row);
    Bits* const band = out + row * source.columns;
    transpose_rows(band, source.columns, in + row, source.column_stride, whole, count, whole);
    for (std::int64_t i = 0; i < count; ++i) {
      for (std::int64_t c = whole; c < source.columns; ++c) {
        band[i * source.columns + c] = in[c * source.column_stride + row + i];
      }
    }
  }
}

template <typename Bits>
void copy_turned(const Turned& source, const void* from, void* to) {
  // Whole squares, about as many numbers as other loops take; at least one square of long rows.
  const std::int64_t squares = kLoopGrain / (source.columns * kTurnedSquare);
  const std::int64_t grain = std::max<std::int64_t>(1, squares) * kTurnedSquare;
  parallel_for(source.rows, grain, [&](std::int64_t begin, std::int64_t end) {
    copy_turned_rows(source, static_cast<const Bits*>(from), static_cast<Bits*>(to), begin, end);
  });
}

bool copied_turned(const LocalTensor& target, const LocalTensor& source) {
  const auto how = turned(target, source);
  if (!how) return false;
  switch (item_size(target.dtype())) {
    case 2:
      copy_turned<std::uint16_t>(*how, source.data(), target.data());
      return true;
    case 4:
      copy_turned<std::uint32_t>(*how, source.data(), target.data());
      return true;
    case 8:
      copy_turned<std::uint64_t>(*how, source.data(), target.data());
      return true;
    default:
      return false;
  }
}

/// Below it, setting up a loop takes longer than the copy.
constexpr std::size_t kBytesOfOneCopy = std::size_t{32} << 10;

void copy_on_host(const LocalTensor& target, const LocalTensor& source) {
  const std::size_t bytes = static_cast<std::size_t>(target.numel()) * item_size(target.dtype());
  if (bytes <= kBytesOfOneCopy && target.dtype() == source.dtype() && target.is_contiguous() &&
      source.is_contiguous()) {
    std::memcpy(target.data(), source.data(), bytes);
    return;
  }
  const ShapesOnly shapes_only = shapes_only_for(target.dtype());
  if (copied_turned(target, source)) return;
  const LoopOperand operands[] = {LoopOperand::of(target), LoopOperand::of(source)};
  for_each_row(target.shape(), operands, copy_kernel(target.dtype(), source.dtype()));
}

/// At least one of the two is on a CUDA device; shapes are equal.
void copy_with_device(const LocalTensor& target, const LocalTensor& source) {
  const bool same_dtype = target.dtype() == source.dtype();
  const bool both_dense = target.is_contiguous() && source.is_contiguous();
  if (target.device() == source.device() && !(same_dtype && both_dense)) {
    return cuda::convert(target, source);
  }
  // Bytes travel as they are: converted before, gathered before, and scattered behind.
  if (!same_dtype) return copy_with_device(target, source.to(target.dtype()));
  if (!source.is_contiguous()) return copy_with_device(target, source.clone());
  if (!target.is_contiguous()) {
    const LocalTensor staged = empty(target.shape(), {target.dtype(), target.device()});
    copy_with_device(staged, source);
    target.copy_(staged);
    return;
  }
  cuda::copy_bytes(target, source);
}

/// The finite numbers of a dtype.
struct Range {
  double least;
  double most;
};
Range range_of(DType dtype) {
  const auto about_zero = [](double most) { return Range{-most, most}; };
  switch (dtype) {
    case DType::f64:
      return about_zero(std::numeric_limits<double>::max());
    case DType::f32:
      return about_zero(std::numeric_limits<float>::max());
    case DType::f16:
      return about_zero(65504);
    case DType::bf16:
      return about_zero(0x1.fep127);
    case DType::i64:
      return {-0x1p63, std::nextafter(0x1p63, 0)};
    case DType::i32:
      return {-0x1p31, 0x1p31 - 1};
    case DType::i16:
      return {-0x1p15, 0x1p15 - 1};
    case DType::i8:
      return {-0x1p7, 0x1p7 - 1};
    case DType::u8:
      return {0, 0xff};
    case DType::boolean:
      break;
  }
  return about_zero(std::numeric_limits<double>::infinity());
}

}  // namespace

void require_one_device(std::string_view operation, const LocalTensor& a, const LocalTensor& b) {
  if (a.device() == b.device()) return;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("{} of tensors on {} and {}", operation, a.device().to_string(),
                          b.device().to_string()),
              "all tensors of an operation must lie on the same device", "to() one of them");
}

void require_fits(std::string_view operation, Scalar number, DType dtype) {
  if (dtype == DType::boolean || (dtype == DType::i64 && !number.is_floating())) return;
  const double value = number.to_double();
  if (is_floating_point(dtype) && !std::isfinite(value)) return;
  Range range = range_of(dtype);
  if (dtype == DType::u8 && !number.is_floating()) range.least = -range.most;
  if (value >= range.least && value <= range.most) return;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("{} of a {} tensor and {}", operation, dtype_name(dtype), value),
              "the number does not fit that dtype", "to() a wider dtype first");
}

const LocalTensor& LocalTensor::copy_(const LocalTensor& source) const {
  require_distinct_elements("copy_", *this);
  LocalTensor from = source.shape() == shape() ? source : source.expand(shape());
  if (numel() == 0 || same_view(*this, from)) return *this;
  if (from.storage() == storage()) from = from.clone();
  if (device().is_cpu() && from.device().is_cpu()) {
    copy_on_host(*this, from);
  } else {
    copy_with_device(*this, from);
  }
  return *this;
}

const LocalTensor& LocalTensor::fill_(Scalar value) const {
  require_distinct_elements("fill_", *this);
  require_fits("fill_", value, dtype());
  if (numel() == 0) return *this;
  const Strides everywhere(shape().size(), 0);
  std::uint64_t bits = 0;
  const std::int64_t one_step[] = {0, 0};
  double floating = value.to_double();
  std::int64_t integer = value.is_floating() ? 0 : value.to_i64();
  char* const source =
      value.is_floating() ? reinterpret_cast<char*>(&floating) : reinterpret_cast<char*>(&integer);
  char* const one[] = {reinterpret_cast<char*>(&bits), source};
  copy_kernel(dtype(), value.is_floating() ? DType::f64 : DType::i64)(one, one_step, 1);
  if (!device().is_cpu()) {
    cuda::fill(*this, bits);
    return *this;
  }
  const ShapesOnly shapes_only = shapes_only_for(dtype());
  const LoopOperand operands[] = {LoopOperand::of(*this), {&bits, everywhere, item_size(dtype())}};
  for_each_row(shape(), operands, copy_kernel(dtype(), dtype()));
  return *this;
}

LocalTensor LocalTensor::clone() const {
  LocalTensor copy = empty(shape(), {dtype(), device()});
  if (numel() == 0) return copy;
  if (device().is_cpu()) {
    copy_on_host(copy, *this);
  } else {
    copy_with_device(copy, *this);
  }
  return copy;
}

LocalTensor LocalTensor::contiguous() const {
  return is_contiguous() ? *this : clone();
}

LocalTensor LocalTensor::to(DType dtype) const {
  if (dtype == this->dtype()) return *this;
  return empty(shape(), {dtype, device()}).copy_(*this);
}

LocalTensor LocalTensor::to(Device device) const {
  return device == this->device() ? *this : empty(shape(), {dtype(), device}).copy_(*this);
}

double LocalTensor::item() const {
  if (numel() != 1) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("item() of a tensor of shape {}", shape_to_string(shape())),
                fmt::format("it has {} elements, not one", numel()), "to_vector()");
  }
  return to_vector().front();
}

std::vector<double> LocalTensor::to_vector() const {
  const LocalTensor values = to(kCpu).to(DType::f64).contiguous();
  const double* first = values.data_as<double>();
  return std::vector<double>(first, first + values.numel());
}

std::vector<std::int64_t> LocalTensor::to_vector_i64() const {
  const LocalTensor values = to(kCpu).to(DType::i64).contiguous();
  const std::int64_t* first = values.data_as<std::int64_t>();
  return std::vector<std::int64_t>(first, first + values.numel());
}

}  // namespace dtrun::tensors
