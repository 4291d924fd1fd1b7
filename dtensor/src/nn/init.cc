#include "dtrun/dtensor/nn/init.h"

#include <cmath>

#include "dtrun/base/error.h"
#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/random.h"

namespace dtrun::dtensor::nn::init {
namespace {

/// Of the thread's next stream, where the tensor lies.
Tensor uniform_like(const Tensor& tensor) {
  if (!tensor.is_distributed()) return rand(tensor.shape(), {tensor.dtype(), tensor.device()});
  return rand(tensor.shape(), tensor.device_mesh(), tensor.placements(), tensor.dtype());
}
Tensor normal_like(const Tensor& tensor) {
  if (!tensor.is_distributed()) return randn(tensor.shape(), {tensor.dtype(), tensor.device()});
  return randn(tensor.shape(), tensor.device_mesh(), tensor.placements(), tensor.dtype());
}

/// sqrt(gain^2 / fan_in), for a leaky_relu.
double kaiming_stddev(const Tensor& weight, double negative_slope) {
  const auto fan = static_cast<double>(fans_of(weight.shape()).in);
  return fan == 0 ? 0 : std::sqrt(2 / ((1 + negative_slope * negative_slope) * fan));
}
double xavier_stddev(const Tensor& weight, double gain) {
  const Fans fans = fans_of(weight.shape());
  const auto both = static_cast<double>(fans.in + fans.out);
  return both == 0 ? 0 : gain * std::sqrt(2 / both);
}

}  // namespace

Fans fans_of(const Shape& shape) {
  if (shape.size() < 2) {
    throw base::Error(base::ErrorCode::kInvalidArgument,
                      "the fans of a tensor of shape " + tensors::shape_to_string(shape),
                      "a weight is [out, in] or [out, in, window...]",
                      "uniform_(), normal_() or zeros_() for a bias");
  }
  std::int64_t window = 1;
  for (std::size_t i = 2; i < shape.size(); ++i) window *= shape[i];
  return {shape[1] * window, shape[0] * window};
}

const Tensor& uniform_(const Tensor& tensor, double low, double high) {
  const NoGrad no_grad;
  return tensor.copy_(uniform_like(tensor) * (high - low) + low);
}
const Tensor& normal_(const Tensor& tensor, double mean, double stddev) {
  const NoGrad no_grad;
  return tensor.copy_(normal_like(tensor) * stddev + mean);
}
const Tensor& constant_(const Tensor& tensor, double value) {
  const NoGrad no_grad;
  return tensor.fill_(value);
}
const Tensor& zeros_(const Tensor& tensor) {
  return constant_(tensor, 0);
}
const Tensor& ones_(const Tensor& tensor) {
  return constant_(tensor, 1);
}
const Tensor& kaiming_uniform_(const Tensor& weight, double negative_slope) {
  const double bound = std::sqrt(3.0) * kaiming_stddev(weight, negative_slope);
  return uniform_(weight, -bound, bound);
}
const Tensor& kaiming_normal_(const Tensor& weight, double negative_slope) {
  return normal_(weight, 0, kaiming_stddev(weight, negative_slope));
}
const Tensor& xavier_uniform_(const Tensor& weight, double gain) {
  const double bound = std::sqrt(3.0) * xavier_stddev(weight, gain);
  return uniform_(weight, -bound, bound);
}
const Tensor& xavier_normal_(const Tensor& weight, double gain) {
  return normal_(weight, 0, xavier_stddev(weight, gain));
}

}  // namespace dtrun::dtensor::nn::init
