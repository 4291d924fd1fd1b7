// conv2d of CUDA tensors, as products of matrices like the host's, many samples at a time. Shapes
// and dtypes have been checked.
#pragma once

#include "dtrun/tensor/ops/convolution.h"
#include "dtrun/tensor/tensor.h"

namespace dtrun::tensors {

/// The shapes of a convolution's three tensors.
struct ConvShapes {
  Shape input, weight, output;
};

LocalTensor conv2d_on_device(const LocalTensor& input, const LocalTensor& weight,
                             const ConvShapes& shapes, const ConvOptions& options);
LocalTensor conv2d_input_gradient_on_device(const LocalTensor& grad, const LocalTensor& weight,
                                            const ConvShapes& shapes, const ConvOptions& options);
LocalTensor conv2d_weight_gradient_on_device(const LocalTensor& grad, const LocalTensor& input,
                                             const ConvShapes& shapes, const ConvOptions& options);

}  // namespace dtrun::tensors
