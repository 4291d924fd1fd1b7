// Blocks of random numbers: which element of the endless sequence stands where.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <type_traits>
#include <vector>

#include "copy_kernel.h"
#include "cuda/random.h"
#include "dtrun/base/error.h"
#include "dtrun/tensor/ops.h"
#include "dtrun/tensor/ops/random.h"
#include "formulas/random.h"
#include "kernels/random_kernel.h"
#include "loops/thread_pool.h"

namespace dtrun::tensors {
namespace {

using base::Error;
using base::ErrorCode;

constexpr std::int64_t kDrawn = 512;       ///< numbers at once
constexpr std::int64_t kDrawGrain = 8192;  ///< numbers that are worth a thread

void check_block(std::string_view name, const RandomBlock& block) {
  const auto& [global_shape, offsets, shape] = block;
  bool fits = offsets.size() == global_shape.size() && shape.size() == global_shape.size();
  for (std::size_t d = 0; fits && d < shape.size(); ++d) {
    fits = offsets[d] >= 0 && shape[d] >= 0 && offsets[d] <= global_shape[d] - shape[d];
  }
  if (fits) return;
  throw Error(
      ErrorCode::kInvalidArgument,
      fmt::format("{} of shape {} at {} lies outside the global shape {}", name,
                  shape_to_string(shape), shape_to_string(offsets), shape_to_string(global_shape)),
      "a block is a part of the whole tensor", "sizes of 0 and more that end within it");
}

/// The index in the whole of the first element of a row of the block.
std::int64_t first_of_row(const RandomBlock& block, const Strides& steps, std::int64_t row) {
  if (block.shape.empty()) return 0;
  std::int64_t first = block.offsets.back();
  for (std::size_t d = block.shape.size() - 1; d-- > 0;) {
    first += (block.offsets[d] + row % block.shape[d]) * steps[d];
    row /= block.shape[d];
  }
  return first;
}

/// A block that draw(numbers, first, count) writes: elements [first, first + count) of the whole.
template <typename Number, typename Draw>
LocalTensor drawn(const RandomBlock& block, DType dtype, Draw&& draw) {
  constexpr DType kFrom = std::is_same_v<Number, double>  ? DType::f64
                          : std::is_same_v<Number, float> ? DType::f32
                                                          : DType::i64;
  LocalTensor result = empty(block.shape, {.dtype = dtype});
  if (result.numel() == 0) return result;
  const ShapesOnly shapes_only = shapes_only_for(dtype);
  const Strides steps = contiguous_strides(block.global_shape);
  const std::int64_t row_size = block.shape.empty() ? 1 : block.shape.back();
  const std::int64_t size = static_cast<std::int64_t>(item_size(dtype));
  const std::int64_t strides[] = {size, sizeof(Number)};
  const RowKernel convert = copy_kernel(dtype, kFrom);
  char* const target = result.data_as<char>();
  parallel_for(result.numel(), kDrawGrain, [&](std::int64_t begin, std::int64_t end) {
    Number numbers[kDrawn];
    while (begin < end) {
      const std::int64_t column = begin % row_size;
      const std::int64_t count = std::min({kDrawn, row_size - column, end - begin});
      const std::int64_t first = first_of_row(block, steps, begin / row_size) + column;
      char* const place = target + begin * size;
      if (dtype == kFrom) {
        draw(reinterpret_cast<Number*>(place), first, count);
      } else {
        draw(numbers, first, count);
        char* const operands[] = {place, reinterpret_cast<char*>(numbers)};
        convert(operands, strides, count);
      }
      begin += count;
    }
  });
  return result;
}

/// Of what a dtype holds in [1/2, 1).
int bits_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return 53;
    case DType::f16:
      return 11;
    case DType::bf16:
      return 8;
    default:
      return 24;
  }
}

/// A block that draw(numbers, random bits, count) writes.
template <typename Number, typename Draw>
LocalTensor drawn_from_bits(const RandomBlock& block, RandomKey key, DType dtype, Draw&& draw) {
  return drawn<Number>(block, dtype, [&](Number* numbers, std::int64_t first, std::int64_t count) {
    std::uint64_t room[kDrawn + kRandomRoom];
    draw(numbers, random_bits(room, key, first, count), count);
  });
}

template <typename Number>
LocalTensor uniform(const RandomBlock& block, RandomKey key, DType dtype) {
  const int bits = bits_of(dtype);
  const auto unit = static_cast<Number>(std::ldexp(1.0, -bits));
  return drawn_from_bits<Number>(
      block, key, dtype, [=](Number* numbers, const std::uint64_t* random, std::int64_t count) {
        uniform_numbers(numbers, random, count, bits, unit);
      });
}

template <typename Number>
LocalTensor normal(const RandomBlock& block, RandomKey key, DType dtype) {
  return drawn<Number>(block, dtype,
                       [key](Number* numbers, std::int64_t first, std::int64_t count) {
                         normal_numbers(numbers, key, first, count);
                       });
}

/// Of 2^53 numbers, how many are dropped.
std::int64_t dropped_of(double p) {
  return static_cast<std::int64_t>(p * 0x1p53);
}
double kept_of(double p) {
  return p >= 1 ? 0 : 1 / (1 - p);
}

template <typename Number>
LocalTensor mask_of(double p, const RandomBlock& block, RandomKey key, DType dtype) {
  const auto kept = static_cast<Number>(kept_of(p));
  const std::int64_t dropped = dropped_of(p);
  return drawn_from_bits<Number>(
      block, key, dtype, [=](Number* numbers, const std::uint64_t* random, std::int64_t count) {
        mask_numbers(numbers, random, count, dropped, kept);
      });
}

/// What is kept, and what the mask multiplies it with, in one pass.
template <typename Number>
void drop_into(const LocalTensor& result, const LocalTensor& a, double p, const RandomBlock& block,
               RandomKey key) {
  constexpr DType kComputed = std::is_same_v<Number, double> ? DType::f64 : DType::f32;
  const auto kept = static_cast<Number>(kept_of(p));
  const std::int64_t dropped = dropped_of(p);
  const Strides steps = contiguous_strides(block.global_shape);
  const std::int64_t row_size = block.shape.empty() ? 1 : block.shape.back();
  const auto size = static_cast<std::int64_t>(item_size(a.dtype()));
  const RowKernel load = copy_kernel(kComputed, a.dtype());
  const RowKernel store = copy_kernel(a.dtype(), kComputed);
  const std::int64_t load_steps[] = {sizeof(Number), size}, store_steps[] = {size, sizeof(Number)};
  parallel_for(a.numel(), kDrawGrain, [&](std::int64_t begin, std::int64_t end) {
    std::uint64_t room[kDrawn + kRandomRoom];
    Number numbers[kDrawn];
    while (begin < end) {
      const std::int64_t column = begin % row_size;
      const std::int64_t count = std::min({kDrawn, row_size - column, end - begin});
      const std::int64_t first = first_of_row(block, steps, begin / row_size) + column;
      char* const from = a.data_as<char>() + begin * size;
      char* const to = result.data_as<char>() + begin * size;
      const std::uint64_t* const random = random_bits(room, key, first, count);
      if (a.dtype() == kComputed) {
        drop_numbers(reinterpret_cast<Number*>(to), reinterpret_cast<const Number*>(from), random,
                     count, dropped, kept);
      } else {
        char* const loaded[] = {reinterpret_cast<char*>(numbers), from};
        load(loaded, load_steps, count);
        drop_numbers(numbers, numbers, random, count, dropped, kept);
        char* const stored[] = {to, reinterpret_cast<char*>(numbers)};
        store(stored, store_steps, count);
      }
      begin += count;
    }
  });
}

/// The same numbers as on the cpu.
LocalTensor random_on_device(const RandomBlock& block, const cuda::RandomNumbers& numbers,
                             TensorOptions options) {
  LocalTensor result = empty(block.shape, options);
  if (result.numel() != 0) cuda::fill_random(result, block, numbers);
  return result;
}

}  // namespace

LocalTensor randn(const Shape& shape, RandomKey key, TensorOptions options) {
  return randn_block(shape, Shape(shape.size(), 0), shape, key, options);
}

LocalTensor randn_block(const Shape& global_shape, const Shape& offsets, const Shape& shape,
                        RandomKey key, TensorOptions options) {
  const RandomBlock block{global_shape, offsets, shape};
  check_block("randn_block", block);
  if (!options.device.is_cpu()) {
    return random_on_device(block, {.form = cuda::RandomForm::normal, .key = key}, options);
  }
  return options.dtype == DType::f32 || options.dtype == DType::bf16 || options.dtype == DType::f16
             ? normal<float>(block, key, options.dtype)
             : normal<double>(block, key, options.dtype);
}

LocalTensor rand_block(const RandomBlock& block, RandomKey key, TensorOptions options) {
  check_block("rand", block);
  if (!is_floating_point(options.dtype)) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("rand of {}", dtype_name(options.dtype)),
                "the numbers lie between 0 and 1", "randint()");
  }
  if (!options.device.is_cpu()) {
    return random_on_device(
        block, {.form = cuda::RandomForm::uniform, .key = key, .bits = bits_of(options.dtype)},
        options);
  }
  return options.dtype == DType::f64 ? uniform<double>(block, key, DType::f64)
                                     : uniform<float>(block, key, options.dtype);
}

LocalTensor randint_block(std::int64_t low, std::int64_t high, const RandomBlock& block,
                          RandomKey key, TensorOptions options) {
  check_block("randint", block);
  if (low >= high) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("randint of [{}, {})", low, high),
                "there are no numbers in it", "the end is not one of them");
  }
  const std::uint64_t range = static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low);
  if (!options.device.is_cpu()) {
    return random_on_device(
        block, {.form = cuda::RandomForm::whole, .key = key, .low = low, .range = range}, options);
  }
  return drawn_from_bits<std::int64_t>(
      block, key, options.dtype,
      [=](std::int64_t* numbers, const std::uint64_t* random, std::int64_t count) {
        for (std::int64_t i = 0; i < count; ++i) {
          numbers[i] = formulas::whole_number(random[i], low, range);
        }
      });
}

LocalTensor randperm(std::int64_t n, RandomKey key, TensorOptions options) {
  if (n < 0) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("randperm of {} numbers", n),
                "it counts elements", "randperm() of 0 and more");
  }
  std::vector<std::uint64_t> random(static_cast<std::size_t>(n + kRandomRoom));
  random_bits(random.data(), key, 0, n);
  std::vector<std::int64_t> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, [&](std::int64_t a, std::int64_t b) {
    const auto x = static_cast<std::size_t>(a), y = static_cast<std::size_t>(b);
    return random[x] != random[y] ? random[x] < random[y] : a < b;
  });
  return tensor_from(order, {n}, DType::i64).to(options.dtype).to(options.device);
}

LocalTensor dropout_mask(double p, const RandomBlock& block, RandomKey key, TensorOptions options) {
  check_block("dropout", block);
  if (!options.device.is_cpu()) {
    return random_on_device(
        block,
        {.form = cuda::RandomForm::mask, .key = key, .dropped = dropped_of(p), .kept = kept_of(p)},
        options);
  }
  return options.dtype == DType::f64 ? mask_of<double>(p, block, key, DType::f64)
                                     : mask_of<float>(p, block, key, options.dtype);
}

LocalTensor dropout(const LocalTensor& a, double p, const RandomBlock& block, RandomKey key) {
  check_block("dropout", block);
  if (!is_floating_point(a.dtype()) || a.shape() != block.shape) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("dropout of {} {} as a block of {}", dtype_name(a.dtype()),
                            shape_to_string(a.shape()), shape_to_string(block.shape)),
                "it takes floating point numbers, of the block's shape", "to(DType::f32)");
  }
  // 1 / (1 - p) has no place in half types.
  const DType compute = a.dtype() == DType::f64 ? DType::f64 : DType::f32;
  const LocalTensor dense = a.contiguous();
  if (!a.device().is_cpu()) {
    return random_on_device(block,
                            {.form = cuda::RandomForm::mask,
                             .key = key,
                             .dropped = dropped_of(p),
                             .kept = kept_of(p),
                             .factors = dense.data()},
                            {a.dtype(), a.device()});
  }
  const LocalTensor result = empty(a.shape(), {a.dtype()});
  if (compute == DType::f64) {
    drop_into<double>(result, dense, p, block, key);
  } else {
    drop_into<float>(result, dense, p, block, key);
  }
  return result;
}

}  // namespace dtrun::tensors
