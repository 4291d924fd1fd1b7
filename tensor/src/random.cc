// Normal numbers that depend on seed, stream and element index only. Logarithm, sine and cosine are
// written out in plain arithmetic (and compiled without fused multiply-add): those of the C library
// differ in the last bit between machines, and ranks on different ones must agree.
#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "copy_kernel.h"
#include "dtrun/base/error.h"
#include "dtrun/tensor/ops.h"
#include "philox.h"

namespace dtrun::tensors {
namespace {

using base::Error;
using base::ErrorCode;

constexpr double kLn2 = 0.693147180559945309417;
constexpr double kTwoPi = 6.283185307179586476925;

/// Natural logarithm of a normal number: 2^e * m with m near 1, and ln m = 2 atanh((m-1)/(m+1)).
double logarithm(double x) {
  const std::uint64_t bits = std::bit_cast<std::uint64_t>(x);
  // Chooses e so that m lies in [sqrt(1/2), sqrt(2)).
  constexpr std::uint64_t kSqrtHalf = 0x3fe6a09e667f3bcd;
  const std::int64_t exponent = static_cast<std::int64_t>(bits - kSqrtHalf) >> 52;
  const double m = std::bit_cast<double>(bits - (static_cast<std::uint64_t>(exponent) << 52));
  const double s = (m - 1) / (m + 1);
  const double square = s * s;
  double series = 0;  // s^2 is under 0.03: the 12th term is under the last bit
  for (int n = 23; n >= 3; n -= 2) series = (series + 1.0 / n) * square;
  return static_cast<double>(exponent) * kLn2 + 2 * (s + s * series);
}

struct SinCos {
  double sin;
  double cos;
};

/// Of 2 pi `turns`, for turns in [0, 1). The Taylor series on an eighth of a turn to either side.
SinCos sin_cos_of_turns(double turns) {
  const std::int64_t quarter = std::lround(turns * 4);
  const double x = (turns - static_cast<double>(quarter) * 0.25) * kTwoPi;
  const double square = x * x;
  double sin_series = 0;
  double cos_series = 0;
  for (int n = 18; n >= 2; n -= 2) {
    cos_series = (1 + cos_series) * -square / (n * (n - 1));
    sin_series = (1 + sin_series) * -square / (n * (n + 1));
  }
  const double sin = x + x * sin_series;
  const double cos = 1 + cos_series;
  switch (quarter % 4) {
    case 0:
      return {sin, cos};
    case 1:
      return {cos, -sin};
    case 2:
      return {-sin, -cos};
    default:
      return {-cos, sin};
  }
}

/// 53 random bits in (0, 1].
double unit_number(std::uint32_t low, std::uint32_t high) {
  const std::uint64_t bits = (std::uint64_t{high} << 32 | low) >> 11;
  return static_cast<double>(bits + 1) * 0x1p-53;
}

/// Elements 2 * pair and 2 * pair + 1, by Box and Muller.
struct NormalPair {
  double even;
  double odd;
};

NormalPair normal_pair(RandomKey key, std::uint64_t pair) {
  const PhiloxCounter bits =
      philox({static_cast<std::uint32_t>(pair), static_cast<std::uint32_t>(pair >> 32),
              static_cast<std::uint32_t>(key.stream), static_cast<std::uint32_t>(key.stream >> 32)},
             {static_cast<std::uint32_t>(key.seed), static_cast<std::uint32_t>(key.seed >> 32)});
  const double radius = std::sqrt(-2 * logarithm(unit_number(bits[0], bits[1])));
  const double turns = 1 - unit_number(bits[2], bits[3]);
  const SinCos angle = sin_cos_of_turns(turns);
  return {radius * angle.cos, radius * angle.sin};
}

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

}  // namespace

Tensor randn(const Shape& shape, RandomKey key, TensorOptions options) {
  return randn_block(shape, Shape(shape.size(), 0), shape, key, options);
}

Tensor randn_block(const Shape& global_shape, const Shape& offsets, const Shape& shape,
                   RandomKey key, TensorOptions options) {
  check_block(global_shape, offsets, shape);
  Tensor block = empty(shape, {.dtype = options.dtype});
  if (block.numel() == 0) return block.to(options.device);
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
  return block.to(options.device);
}

}  // namespace dtrun::tensors
