// Convolution of images. Samples may be sharded, and channels if there are no groups. Heights and
// widths are whole on every rank.
#pragma once

#include "dtrun/dtensor/autograd/tensor.h"
#include "dtrun/tensor/ops/convolution.h"

namespace dtrun::dtensor {

using tensors::ConvOptions;
using tensors::HeightWidth;

/// torch.nn.functional.conv2d: images [n, in, height, width], or one without n. @param weight [out,
/// in / groups, height, width] @param bias [out], or undefined
Tensor conv2d(const Tensor& input, const Tensor& weight, const Tensor& bias = {},
              const ConvOptions& options = {});

}  // namespace dtrun::dtensor
