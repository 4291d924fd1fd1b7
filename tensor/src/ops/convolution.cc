// Convolution as products of matrices: what lies under each place of the window is a column, as in
// "High Performance Convolutional Neural Networks for Document Processing" (Chellapilla et al.,
// 2006). One sample's columns at a time, so that they fit a cache.
#include "dtrun/tensor/ops/convolution.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>

#include "blas.h"
#include "dtrun/base/error.h"
#include "dtrun/tensor/ops.h"
#include "dtrun/tensor/reduce_kernel.h"
#include "loops/thread_pool.h"
#include "ops/device_convolution.h"
#include "require.h"

namespace dtrun::tensors {
namespace {

[[noreturn]] void refuse_conv(std::string what, std::string why, std::string remedy) {
  throw base::Error(base::ErrorCode::kInvalidArgument, "conv2d of " + std::move(what),
                    std::move(why), std::move(remedy));
}

/// How many places a window has along one dim.
std::int64_t places(std::int64_t size, std::int64_t window, std::int64_t stride,
                    std::int64_t padding, std::int64_t dilation) {
  const std::int64_t covered = dilation * (window - 1) + 1;
  return size + 2 * padding < covered ? 0 : (size + 2 * padding - covered) / stride + 1;
}

/// All sizes of one convolution.
struct Conv {
  ConvOptions options;
  std::int64_t samples, in, out;  ///< channels
  std::int64_t height, width;
  std::int64_t window_height, window_width;
  std::int64_t out_height, out_width;

  Conv(const Shape& input, const Shape& weight, const Shape& output, const ConvOptions& its_options)
      : options(its_options),
        samples(input[0]),
        in(input[1]),
        out(weight[0]),
        height(input[2]),
        width(input[3]),
        window_height(weight[2]),
        window_width(weight[3]),
        out_height(output[2]),
        out_width(output[3]) {
    constexpr std::int64_t kMax = std::numeric_limits<int>::max();
    if (column_length() > kMax || positions() > kMax) {
      refuse_conv(shape_to_string(input), "BLAS counts rows and columns in 31 bits",
                  "smaller batches");
    }
  }

  std::int64_t group_in() const { return in / options.groups; }
  std::int64_t group_out() const { return out / options.groups; }
  std::int64_t column_length() const { return group_in() * window_height * window_width; }
  std::int64_t positions() const { return out_height * out_width; }
  std::int64_t image() const { return group_in() * height * width; }  ///< elements, of one group
  std::int64_t result() const { return group_out() * positions(); }
  std::int64_t group_weight() const { return group_out() * column_length(); }
  /// The image is its own columns.
  bool is_pointwise() const {
    return window_height == 1 && window_width == 1 && options.stride.height == 1 &&
           options.stride.width == 1 && options.padding.height == 0 && options.padding.width == 0;
  }
};

/// The places [first, last) of a window's element that lie within the image, along one dim.
struct Inside {
  std::int64_t first, last;
};
Inside inside(std::int64_t shift, std::int64_t size, std::int64_t stride, std::int64_t count) {
  const std::int64_t first = shift >= 0 ? 0 : (-shift + stride - 1) / stride;
  const std::int64_t last = shift >= size ? 0 : (size - shift + stride - 1) / stride;
  return {std::min(first, count), std::clamp(last, std::min(first, count), count)};
}

/// visit(row of the columns' matrix, image row, first place's column, places) for each line of
/// places that lie in the image; the others are given to skip(row, begin, end).
template <typename Visit, typename Skip>
void walk_columns(const Conv& c, Visit&& visit, Skip&& skip) {
  std::int64_t row = 0;
  for (std::int64_t channel = 0; channel < c.group_in(); ++channel) {
    for (std::int64_t y = 0; y < c.window_height; ++y) {
      for (std::int64_t x = 0; x < c.window_width; ++x, ++row) {
        const std::int64_t down = y * c.options.dilation.height - c.options.padding.height;
        const std::int64_t right = x * c.options.dilation.width - c.options.padding.width;
        const Inside lines = inside(down, c.height, c.options.stride.height, c.out_height);
        const Inside across = inside(right, c.width, c.options.stride.width, c.out_width);
        const std::int64_t begin = row * c.positions();
        skip(begin, begin + lines.first * c.out_width);
        for (std::int64_t line = lines.first; line < lines.last; ++line) {
          const std::int64_t start = begin + line * c.out_width;
          const std::int64_t source =
              (channel * c.height + down + line * c.options.stride.height) * c.width + right +
              across.first * c.options.stride.width;
          skip(start, start + across.first);
          visit(start + across.first, source, across.last - across.first);
          skip(start + across.last, start + c.out_width);
        }
        skip(begin + lines.last * c.out_width, begin + c.positions());
      }
    }
  }
}

template <typename T>
void to_columns(const Conv& c, const T* image, T* columns) {
  const std::int64_t step = c.options.stride.width;
  walk_columns(
      c,
      [&](std::int64_t to, std::int64_t from, std::int64_t count) {
        if (step == 1) {
          std::copy_n(image + from, count, columns + to);
        } else {
          for (std::int64_t i = 0; i < count; ++i) columns[to + i] = image[from + i * step];
        }
      },
      [&](std::int64_t begin, std::int64_t end) {
        std::fill(columns + begin, columns + end, T{0});
      });
}

/// Adds each column's elements where they came from.
template <typename T>
void add_columns(const Conv& c, const T* columns, T* image) {
  const std::int64_t step = c.options.stride.width;
  walk_columns(
      c,
      [&](std::int64_t from, std::int64_t to, std::int64_t count) {
        for (std::int64_t i = 0; i < count; ++i) image[to + i * step] += columns[from + i];
      },
      [](std::int64_t, std::int64_t) {});
}

/// rows x columns, one row after the other.
MatrixView dense(const void* data, std::int64_t rows, std::int64_t columns) {
  return {data, rows, columns, columns, 1};
}
MatrixView transposed(const MatrixView& matrix) {
  return {matrix.data, matrix.columns, matrix.rows, matrix.column_stride, matrix.row_stride};
}

/// The columns of one group of a sample: the image itself, or made in `room`.
template <typename T>
const T* columns_of(const Conv& c, const T* image, const LocalTensor& room) {
  if (c.is_pointwise()) return image;
  to_columns(c, image, room.data_as<T>());
  return room.data_as<const T>();
}
LocalTensor column_room(const Conv& c, DType dtype) {
  return c.is_pointwise() ? LocalTensor() : empty({c.column_length(), c.positions()}, {dtype});
}

/// How many samples of a group are worth a thread: depends on the sizes only.
std::int64_t samples_a_chunk(const Conv& c) {
  constexpr std::int64_t kProducts = 1 << 18;
  return 1 + kProducts / std::max<std::int64_t>(1, c.group_weight() * c.positions());
}

template <typename T>
void run_forward(const Conv& c, const T* input, const T* weight, T* output, DType dtype) {
  parallel_for(c.samples * c.options.groups, samples_a_chunk(c),
               [&](std::int64_t begin, std::int64_t end) {
                 const LocalTensor room = column_room(c, dtype);
                 for (std::int64_t i = begin; i < end; ++i) {
                   const T* const columns = columns_of(c, input + i * c.image(), room);
                   const T* const group = weight + i % c.options.groups * c.group_weight();
                   multiply_matrices(dtype, dense(group, c.group_out(), c.column_length()),
                                     dense(columns, c.column_length(), c.positions()),
                                     output + i * c.result());
                 }
               });
}

/// run(an element), whose type is the dtype's.
template <typename Run>
void for_floating(DType dtype, Run&& run) {
  switch (dtype) {
    case DType::f64:
      return run(double());
    case DType::bf16:
      return run(BFloat16());
    case DType::f16:
      return run(Float16());
    default:
      return run(float());
  }
}

/// Of one dtype. Each element is one product, which halves round once, too.
LocalTensor forward(const Conv& c, const Shape& shape, const LocalTensor& input,
                    const LocalTensor& weight) {
  const DType dtype = input.dtype();
  const LocalTensor images = input.contiguous(), windows = weight.contiguous();
  const LocalTensor output = empty(shape, {dtype});
  const auto run = [&]<typename T>(T) {
    run_forward(c, images.data_as<const T>(), windows.data_as<const T>(), output.data_as<T>(),
                dtype);
  };
  for_floating(dtype, run);
  return output;
}

/// What a sample's gradient is computed in: halves are widened a sample of a group at a time.
template <typename T>
using Computed = std::conditional_t<sizeof(T) == 2, float, T>;

/// Room for `count` widened numbers, where T is a half.
template <typename T>
LocalTensor widened_room(std::int64_t count) {
  return sizeof(T) == 2 ? empty({count}, {DType::f32}) : LocalTensor();
}
template <typename T>
const Computed<T>* widened(DType stored, const T* from, std::int64_t count,
                           const LocalTensor& room) {
  if constexpr (sizeof(T) != 2) {
    return from;
  } else {
    widen(stored, room.data_as<float>(), from, count);
    return room.data_as<const float>();
  }
}

/// @param weight all of it, which each sample reads
template <typename T>
void run_input_gradient(const Conv& c, const T* grad, const Computed<T>* weight, T* input,
                        DType stored) {
  using C = Computed<T>;
  const DType dtype = stored == DType::f64 ? stored : DType::f32;
  parallel_for(
      c.samples * c.options.groups, samples_a_chunk(c), [&](std::int64_t begin, std::int64_t end) {
        const LocalTensor room = column_room(c, dtype), gradients = widened_room<T>(c.result()),
                          images = widened_room<T>(c.image());
        for (std::int64_t i = begin; i < end; ++i) {
          C* image = nullptr;
          if constexpr (sizeof(T) == 2) {
            image = images.template data_as<C>();
          } else {
            image = input + i * c.image();
          }
          C* const columns = c.is_pointwise() ? image : room.data_as<C>();
          const C* const group = weight + i % c.options.groups * c.group_weight();
          const C* const given = widened(stored, grad + i * c.result(), c.result(), gradients);
          multiply_matrices(dtype, transposed(dense(group, c.group_out(), c.column_length())),
                            dense(given, c.group_out(), c.positions()), columns);
          if (!c.is_pointwise()) {
            std::fill_n(image, c.image(), C{0});
            add_columns(c, columns, image);
          }
          if constexpr (sizeof(T) == 2) narrow(stored, input + i * c.image(), image, c.image());
        }
      });
}

/// Each chunk of samples has a sum of its own; the chunks do not depend on the number of threads.
constexpr std::int64_t kWeightSums = 16;
std::int64_t samples_a_sum(const Conv& c) {
  return std::max(samples_a_chunk(c), (c.samples + kWeightSums - 1) / kWeightSums);
}

template <typename T>
void run_weight_gradient(const Conv& c, const T* grad, const T* input, Computed<T>* sums,
                         DType stored) {
  using C = Computed<T>;
  const DType dtype = stored == DType::f64 ? stored : DType::f32;
  parallel_for(c.samples, samples_a_sum(c), [&](std::int64_t begin, std::int64_t end) {
    const LocalTensor room = column_room(c, dtype), gradients = widened_room<T>(c.result()),
                      images = widened_room<T>(c.image());
    const LocalTensor product = empty({c.group_out(), c.column_length()}, {dtype});
    C* const sum = sums + begin / samples_a_sum(c) * c.out * c.column_length();
    for (std::int64_t i = begin * c.options.groups; i < end * c.options.groups; ++i) {
      const C* const columns =
          columns_of(c, widened(stored, input + i * c.image(), c.image(), images), room);
      const C* const given = widened(stored, grad + i * c.result(), c.result(), gradients);
      multiply_matrices(dtype, dense(given, c.group_out(), c.positions()),
                        transposed(dense(columns, c.column_length(), c.positions())),
                        product.data());
      const C* const from = product.data_as<const C>();
      C* const to = sum + i % c.options.groups * c.group_weight();
      for (std::int64_t k = 0; k < c.group_weight(); ++k) to[k] += from[k];
    }
  });
}

DType conv_dtype(std::string_view name, const LocalTensor& a, const LocalTensor& b) {
  require_one_device(name, a, b);
  if (a.dtype() != b.dtype() || !is_floating_point(a.dtype())) {
    refuse_conv(fmt::format("{} and {}", dtype_name(a.dtype()), dtype_name(b.dtype())),
                "both have one floating point dtype", "to()");
  }
  return a.dtype() == DType::f64 ? DType::f64 : DType::f32;
}

}  // namespace

Shape conv2d_shape(const Shape& input, const Shape& weight, const ConvOptions& options) {
  const std::string what =
      fmt::format("images {} and weights {}", shape_to_string(input), shape_to_string(weight));
  if (input.size() != 4 || weight.size() != 4) {
    refuse_conv(what, "they are [n, in, height, width] and [out, in / groups, height, width]",
                "unsqueeze(0) of a single image");
  }
  const auto& [stride, padding, dilation, groups] = options;
  if (stride.height < 1 || stride.width < 1 || dilation.height < 1 || dilation.width < 1 ||
      padding.height < 0 || padding.width < 0) {
    const auto pair = [](const HeightWidth& size) {
      return fmt::format("({}, {})", size.height, size.width);
    };
    refuse_conv(fmt::format("{} with stride {}, padding {} and dilation {}", what, pair(stride),
                            pair(padding), pair(dilation)),
                "stride and dilation are 1 at least, padding is 0 at least",
                "the options' defaults: 1, 0 and 1");
  }
  if (groups < 1 || input[1] % groups != 0 || weight[0] % groups != 0 ||
      input[1] / groups != weight[1]) {
    refuse_conv(fmt::format("{} in {} groups", what, groups), "the channels do not meet",
                "images with as many channels as the weights' second dim times groups");
  }
  if (weight[2] < 1 || weight[3] < 1)
    refuse_conv(what, "the windows are empty", "windows of 1 and more");
  const std::int64_t height =
      places(input[2], weight[2], stride.height, padding.height, dilation.height);
  const std::int64_t width =
      places(input[3], weight[3], stride.width, padding.width, dilation.width);
  if (height < 1 || width < 1) {
    refuse_conv(what, "the windows are larger than the padded images", "a larger padding");
  }
  return {input[0], weight[0], height, width};
}

LocalTensor conv2d(const LocalTensor& input, const LocalTensor& weight,
                   const ConvOptions& options) {
  conv_dtype("conv2d", input, weight);
  const Shape shape = conv2d_shape(input.shape(), weight.shape(), options);
  if (numel(shape) == 0) return empty(shape, {input.dtype(), input.device()});
  if (!input.device().is_cpu()) {
    return conv2d_on_device(input, weight, {input.shape(), weight.shape(), shape}, options);
  }
  return forward(Conv(input.shape(), weight.shape(), shape, options), shape, input, weight);
}

LocalTensor conv2d_input_gradient(const LocalTensor& grad, const LocalTensor& weight,
                                  HeightWidth size, const ConvOptions& options) {
  const DType compute = conv_dtype("conv2d_input_gradient", grad, weight);
  const Shape shape = {grad.size(0), weight.size(1) * options.groups, size.height, size.width};
  if (numel(shape) == 0 || grad.numel() == 0) return zeros(shape, {grad.dtype(), grad.device()});
  if (!grad.device().is_cpu()) {
    return conv2d_input_gradient_on_device(grad, weight, {shape, weight.shape(), grad.shape()},
                                           options);
  }
  const Conv c(shape, weight.shape(), grad.shape(), options);
  const LocalTensor gradients = grad.contiguous(), windows = weight.to(compute).contiguous();
  const LocalTensor input = empty(shape, {grad.dtype()});
  for_floating(grad.dtype(), [&]<typename T>(T) {
    run_input_gradient(c, gradients.data_as<const T>(), windows.data_as<const Computed<T>>(),
                       input.data_as<T>(), grad.dtype());
  });
  return input;
}

LocalTensor conv2d_weight_gradient(const LocalTensor& grad, const LocalTensor& input,
                                   HeightWidth size, const ConvOptions& options) {
  const DType compute = conv_dtype("conv2d_weight_gradient", grad, input);
  const Shape shape = {grad.size(1), input.size(1) / options.groups, size.height, size.width};
  if (numel(shape) == 0 || grad.numel() == 0) {
    return zeros(shape, {grad.dtype(), grad.device()});
  }
  if (!grad.device().is_cpu()) {
    return conv2d_weight_gradient_on_device(grad, input, {input.shape(), shape, grad.shape()},
                                            options);
  }
  const Conv c(input.shape(), shape, grad.shape(), options);
  const std::int64_t sum_count = (c.samples + samples_a_sum(c) - 1) / samples_a_sum(c);
  const LocalTensor sums = zeros({sum_count, numel(shape)}, {compute});
  const LocalTensor gradients = grad.contiguous(), images = input.contiguous();
  for_floating(grad.dtype(), [&]<typename T>(T) {
    run_weight_gradient(c, gradients.data_as<const T>(), images.data_as<const T>(),
                        sums.data_as<Computed<T>>(), grad.dtype());
  });
  return sum(sums, {0}).view(shape).to(grad.dtype());
}

}  // namespace dtrun::tensors
