// Convolution of images, [n, channels, height, width], as torch.nn.functional.conv2d, and its
// gradients. Floating point; f16 and bf16 are computed in f32 and rounded once. The same bits for
// every number of threads. On CUDA the columns of up to 2^26 elements are made at a time.
#pragma once

#include <cstdint>

#include "dtrun/tensor/tensor.h"

namespace dtrun::tensors {

/// A number for each of the two dims of an image; one for both.
struct HeightWidth {
  HeightWidth(std::int64_t both) : height(both), width(both) {}  // NOLINT: 2 is {2, 2}
  HeightWidth(std::int64_t its_height, std::int64_t its_width)
      : height(its_height), width(its_width) {}
  std::int64_t height;
  std::int64_t width;
};

struct ConvOptions {
  HeightWidth stride = 1;
  HeightWidth padding = 0;  ///< zeros on either side
  HeightWidth dilation = 1;
  std::int64_t groups = 1;  ///< of channels; each sees its own
};

/// Of the result. @param weight [out, in / groups, height, width] @throws Error kInvalidArgument
Shape conv2d_shape(const Shape& input, const Shape& weight, const ConvOptions& options);
LocalTensor conv2d(const LocalTensor& input, const LocalTensor& weight, const ConvOptions& options);
/// @param size of the images
LocalTensor conv2d_input_gradient(const LocalTensor& grad, const LocalTensor& weight,
                                  HeightWidth size, const ConvOptions& options);
/// @param size of the weight's windows
LocalTensor conv2d_weight_gradient(const LocalTensor& grad, const LocalTensor& input,
                                   HeightWidth size, const ConvOptions& options);

}  // namespace dtrun::tensors
