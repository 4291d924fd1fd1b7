// The columns of convolutions of CUDA tensors: what lies under each place of a window. As in
// cuda/kernels.h: enqueued on the current stream, kUnavailable in a build without CUDA.
#pragma once

#include <cstdint>

#include "dtrun/tensor/ops/convolution.h"
#include "dtrun/tensor/tensor.h"

namespace dtrun::tensors::cuda {

struct ColumnSizes {
  std::int64_t channels, height, width;  ///< of an image
  std::int64_t window_height, window_width;
  std::int64_t out_height, out_width;  ///< places of a window
  ConvOptions options;

  std::int64_t length() const { return channels * window_height * window_width; }
  std::int64_t places() const { return out_height * out_width; }
};

/// [n, channels, height, width] -> [n, length, places], contiguous, of one floating-point dtype; 0
/// beyond the images.
void images_to_columns(const LocalTensor& columns, const LocalTensor& images,
                       const ColumnSizes& sizes);
/// Each element of an image = the sum of those of the columns that came from it, in the windows'
/// order, as on the host. f32 or f64.
void columns_to_images(const LocalTensor& images, const LocalTensor& columns,
                       const ColumnSizes& sizes);

}  // namespace dtrun::tensors::cuda
