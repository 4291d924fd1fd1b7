#include "dtrun/dtensor/nn/init.h"

#include <cmath>
#include <numbers>
#include <string>

#include "autograd/deferred.h"
#include "dtrun/base/error.h"
#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/elementwise.h"
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

/// The inverse of erf in (-1, 1): Winitzki's approximation, then Newton's steps.
Tensor inverse_erf(const Tensor& y) {
  constexpr double kA = 0.147;
  const Tensor log_of_rest = log1p(neg(square(y)));
  const Tensor half = log_of_rest * 0.5 + 2 / (std::numbers::pi * kA);
  Tensor x = sign(y) * sqrt(sqrt(square(half) - log_of_rest * (1 / kA)) - half);
  for (int step = 0; step < 3; ++step)
    x = x - (erf(x) - y) * exp(square(x)) * (std::sqrt(std::numbers::pi) / 2);
  return x;
}

/// Of the standard normal distribution.
double share_below(double x) {
  return (1 + std::erf(x / std::numbers::sqrt2)) / 2;
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
  Deferred::write(tensor, 1, [low, high](const Tensor& target) {
    const NoGrad no_grad;
    target.copy_(uniform_like(target) * (high - low) + low);
  });
  return tensor;
}
const Tensor& normal_(const Tensor& tensor, double mean, double stddev) {
  Deferred::write(tensor, 1, [mean, stddev](const Tensor& target) {
    const NoGrad no_grad;
    target.copy_(normal_like(target) * stddev + mean);
  });
  return tensor;
}
const Tensor& trunc_normal_(const Tensor& tensor, double mean, double stddev, double low,
                            double high) {
  if (!(low < high) || !(stddev > 0)) {
    throw base::Error(base::ErrorCode::kInvalidArgument,
                      "trunc_normal_ from " + std::to_string(low) + " to " + std::to_string(high) +
                          " with a standard deviation of " + std::to_string(stddev),
                      "the first bound is below the second, the deviation above 0");
  }
  Deferred::write(tensor, 1, [mean, stddev, low, high](const Tensor& target) {
    const NoGrad no_grad;
    const double least = 2 * share_below((low - mean) / stddev) - 1;
    const double most = 2 * share_below((high - mean) / stddev) - 1;
    const Tensor uniform = uniform_like(target).to(DType::f64) * (most - least) + least;
    // At 1 and -1 the inverse is infinite: bounds that are far away are never reached.
    const Tensor inside = clamp(uniform, -1 + 1e-15, 1 - 1e-15);
    const Tensor numbers = inverse_erf(inside) * (stddev * std::numbers::sqrt2) + mean;
    target.copy_(clamp(numbers, low, high));
  });
  return tensor;
}
const Tensor& constant_(const Tensor& tensor, double value) {
  Deferred::write(tensor, 0, [value](const Tensor& target) {
    const NoGrad no_grad;
    target.fill_(value);
  });
  return tensor;
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
