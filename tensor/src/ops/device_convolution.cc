#include "ops/device_convolution.h"

#include <algorithm>

#include "cuda/convolution.h"
#include "dtrun/tensor/ops.h"

namespace dtrun::tensors {
namespace {

/// A convolution's samples in chunks, whose columns are bounded.
struct DeviceConv {
  cuda::ColumnSizes sizes;
  std::int64_t samples, groups, out;  ///< out: channels of a group
  std::int64_t samples_a_chunk;

  DeviceConv(const ConvShapes& shapes, const ConvOptions& options)
      : sizes{shapes.weight[1], shapes.input[2],  shapes.input[3],  shapes.weight[2],
              shapes.weight[3], shapes.output[2], shapes.output[3], options},
        samples(shapes.input[0]),
        groups(options.groups),
        out(shapes.weight[0] / options.groups) {
    constexpr std::int64_t kMostElements = std::int64_t{1} << 26;
    const std::int64_t sample = groups * std::max(sizes.length(), out) * sizes.places();
    samples_a_chunk = std::clamp<std::int64_t>(kMostElements / std::max<std::int64_t>(sample, 1), 1,
                                               std::max<std::int64_t>(samples, 1));
  }

  std::int64_t chunks() const { return (samples + samples_a_chunk - 1) / samples_a_chunk; }
  /// The samples of a chunk.
  LocalTensor chunk_of(const LocalTensor& tensor, std::int64_t chunk) const {
    const std::int64_t first = chunk * samples_a_chunk;
    return tensor.narrow(0, first, std::min(samples_a_chunk, samples - first));
  }

  /// [samples, groups, rows, columns], without the groups where there is one.
  Shape matrices(std::int64_t count, std::int64_t rows, std::int64_t columns) const {
    if (groups == 1) return {count, rows, columns};
    return {count, groups, rows, columns};
  }
  /// The same for all samples.
  LocalTensor windows(const LocalTensor& weight, std::int64_t count) const {
    Shape one = matrices(1, out, sizes.length());
    const LocalTensor matrix = weight.contiguous().view(one);
    one[0] = count;
    return matrix.expand(one);
  }
  /// The image is its own columns.
  bool is_pointwise() const {
    const ConvOptions& o = sizes.options;
    return sizes.window_height == 1 && sizes.window_width == 1 && o.stride.height == 1 &&
           o.stride.width == 1 && o.padding.height == 0 && o.padding.width == 0;
  }
  LocalTensor columns_of(const LocalTensor& images) const {
    const Shape shape = matrices(images.size(0), sizes.length(), sizes.places());
    if (is_pointwise()) return images.view(shape);
    const LocalTensor columns = empty(shape, {images.dtype(), images.device()});
    cuda::images_to_columns(columns, images, sizes);
    return columns;
  }
};

DType summed_dtype(DType dtype) {
  return dtype == DType::f64 ? dtype : DType::f32;
}

}  // namespace

LocalTensor conv2d_on_device(const LocalTensor& input, const LocalTensor& weight,
                             const ConvShapes& shapes, const ConvOptions& options) {
  const DeviceConv conv(shapes, options);
  const LocalTensor output = empty(shapes.output, {input.dtype(), input.device()});
  const LocalTensor images = input.contiguous();
  for (std::int64_t chunk = 0; chunk < conv.chunks(); ++chunk) {
    // Halves are summed in f32, and rounded once.
    const LocalTensor to = conv.chunk_of(output, chunk);
    const LocalTensor columns = conv.columns_of(conv.chunk_of(images, chunk));
    to.copy_(matmul(conv.windows(weight, to.size(0)), columns).view(to.shape()));
  }
  return output;
}

LocalTensor conv2d_input_gradient_on_device(const LocalTensor& grad, const LocalTensor& weight,
                                            const ConvShapes& shapes, const ConvOptions& options) {
  const DeviceConv conv(shapes, options);
  const DType compute = summed_dtype(grad.dtype());
  const LocalTensor input = empty(shapes.input, {compute, grad.device()});
  const LocalTensor gradients = grad.to(compute).contiguous();
  const LocalTensor windows = weight.to(compute);
  for (std::int64_t chunk = 0; chunk < conv.chunks(); ++chunk) {
    const LocalTensor to = conv.chunk_of(input, chunk);
    const LocalTensor part = conv.chunk_of(gradients, chunk);
    const LocalTensor columns =
        matmul(conv.windows(windows, to.size(0)).transpose(-2, -1),
               part.view(conv.matrices(to.size(0), conv.out, conv.sizes.places())));
    if (conv.is_pointwise()) {
      to.copy_(columns.view(to.shape()));
    } else {
      cuda::columns_to_images(to, columns, conv.sizes);
    }
  }
  return input.to(grad.dtype());
}

LocalTensor conv2d_weight_gradient_on_device(const LocalTensor& grad, const LocalTensor& input,
                                             const ConvShapes& shapes, const ConvOptions& options) {
  const DeviceConv conv(shapes, options);
  const DType compute = summed_dtype(grad.dtype());
  const LocalTensor gradients = grad.to(compute).contiguous();
  const LocalTensor images = input.to(compute).contiguous();
  const LocalTensor sums = empty({conv.chunks(), numel(shapes.weight)}, {compute, grad.device()});
  for (std::int64_t chunk = 0; chunk < conv.chunks(); ++chunk) {
    const LocalTensor part = conv.chunk_of(gradients, chunk);
    const LocalTensor columns = conv.columns_of(conv.chunk_of(images, chunk));
    const LocalTensor each =
        matmul(part.view(conv.matrices(part.size(0), conv.out, conv.sizes.places())),
               columns.transpose(-2, -1));
    sums.select(0, chunk).copy_(sum(each.view({part.size(0), numel(shapes.weight)}), {0}));
  }
  return sum(sums, {0}).view(shapes.weight).to(grad.dtype());
}

}  // namespace dtrun::tensors
