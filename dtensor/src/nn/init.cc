#include "dtrun/dtensor/nn/init.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "autograd/deferred.h"
#include "dtrun/base/error.h"
#include "dtrun/dtensor/autograd/grad.h"
#include "dtrun/dtensor/mesh/spec.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/dtensor/ops/elementwise.h"
#include "dtrun/dtensor/ops/products.h"
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

double kaiming_stddev(const Tensor& weight, double negative_slope, FanMode mode,
                      Nonlinearity nonlinearity) {
  const Fans fans = fans_of(weight.shape());
  const auto fan = static_cast<double>(mode == FanMode::fan_in ? fans.in : fans.out);
  return fan == 0 ? 0 : calculate_gain(nonlinearity, negative_slope) / std::sqrt(fan);
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

/// What is left of each row without those before it, of length 1.
void orthonormalize(std::vector<double>& rows, std::int64_t length) {
  const auto product = [](std::span<const double> a, std::span<const double> b) {
    return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
  };
  const auto width = static_cast<std::size_t>(length);
  for (std::size_t begin = 0; begin < rows.size(); begin += width) {
    const std::span<double> row(&rows[begin], width);
    for (std::size_t before = 0; before < begin; before += width) {
      const std::span<const double> other(&rows[before], width);
      const double along = product(row, other);
      for (std::size_t k = 0; k < width; ++k) row[k] -= along * other[k];
    }
    const double norm = std::sqrt(product(row, row));
    for (double& number : row) number /= norm;
  }
}

/// The Q of a QR decomposition whose R has a positive diagonal, transposed: that of normal numbers
/// is spread evenly over all such matrices. By blocks, for products of matrices are fast.
Tensor with_orthonormal_rows(const Tensor& matrix) {
  constexpr std::int64_t kBlock = 32;
  const std::int64_t count = matrix.size(0), length = matrix.size(1);
  const Tensor done = matrix.clone();
  for (std::int64_t begin = 0; begin < count; begin += kBlock) {
    const std::int64_t height = std::min(kBlock, count - begin);
    const Tensor place = done.narrow(0, begin, height), before = done.narrow(0, 0, begin);
    // Twice: what rounding leaves of the rows before is then of the size of rounding itself.
    for (int pass = 0; pass < 2; ++pass) {
      const Tensor rest = begin == 0 ? place : place - mm(mm(place, before.t()), before);
      std::vector<double> rows = rest.to_vector();
      orthonormalize(rows, length);
      place.copy_(tensor_from(rows, {height, length}, DType::f64));
    }
  }
  return done;
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
                      "the first bound is below the second, the deviation above 0",
                      "bounds in that order, and a deviation above 0");
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
const Tensor& eye_(const Tensor& matrix) {
  if (matrix.dim() != 2) {
    throw base::Error(base::ErrorCode::kInvalidArgument,
                      "eye_ of a tensor of shape " + tensors::shape_to_string(matrix.shape()),
                      "an identity is a matrix", "a tensor of two dims");
  }
  Deferred::write(matrix, 0, [](const Tensor& target) {
    const NoGrad no_grad;
    const std::int64_t rows = target.size(0), columns = target.size(1);
    target.copy_(target.is_distributed()
                     ? eye(rows, columns, target.device_mesh(), target.placements(), target.dtype())
                     : eye(rows, columns, {target.dtype(), target.device()}));
  });
  return matrix;
}
const Tensor& orthogonal_(const Tensor& weight, double gain) {
  fans_of(weight.shape());  // refuses less than two dims
  Deferred::write(weight, 1, [gain](const Tensor& target) {
    const NoGrad no_grad;
    const Shape shape = target.shape();
    const bool is_distributed = target.is_distributed();
    const Placements whole(is_distributed ? target.placements().size() : 0, Replicate());
    const Tensor drawn = is_distributed ? randn(shape, target.device_mesh(), whole, DType::f64)
                                        : randn(shape, {DType::f64, tensors::kCpu});
    if (target.numel() == 0 || (is_distributed && target.spec().is_outside())) return;
    const Tensor matrix =
        Tensor(drawn.local()).to(tensors::kCpu).reshape({shape[0], target.numel() / shape[0]});
    const bool is_tall = matrix.size(0) > matrix.size(1);
    const Tensor rows = with_orthonormal_rows(is_tall ? matrix.t() : matrix);
    const Tensor numbers =
        ((is_tall ? rows.t() : rows) * gain).reshape(shape).to(target.dtype()).to(target.device());
    target.copy_(is_distributed ? Tensor::from_local(numbers, target.device_mesh(), whole)
                                : numbers);
  });
  return weight;
}
double calculate_gain(Nonlinearity nonlinearity, double negative_slope) {
  switch (nonlinearity) {
    case Nonlinearity::linear:
    case Nonlinearity::sigmoid:
      break;
    case Nonlinearity::tanh:
      return 5.0 / 3;
    case Nonlinearity::relu:
      return std::numbers::sqrt2;
    case Nonlinearity::leaky_relu:
      return std::sqrt(2 / (1 + negative_slope * negative_slope));
    case Nonlinearity::selu:
      return 0.75;
  }
  return 1;
}
const Tensor& kaiming_uniform_(const Tensor& weight, double negative_slope, FanMode mode,
                               Nonlinearity nonlinearity) {
  const double bound = std::sqrt(3.0) * kaiming_stddev(weight, negative_slope, mode, nonlinearity);
  return uniform_(weight, -bound, bound);
}
const Tensor& kaiming_normal_(const Tensor& weight, double negative_slope, FanMode mode,
                              Nonlinearity nonlinearity) {
  return normal_(weight, 0, kaiming_stddev(weight, negative_slope, mode, nonlinearity));
}
const Tensor& xavier_uniform_(const Tensor& weight, double gain) {
  const double bound = std::sqrt(3.0) * xavier_stddev(weight, gain);
  return uniform_(weight, -bound, bound);
}
const Tensor& xavier_normal_(const Tensor& weight, double gain) {
  return normal_(weight, 0, xavier_stddev(weight, gain));
}

}  // namespace dtrun::dtensor::nn::init
