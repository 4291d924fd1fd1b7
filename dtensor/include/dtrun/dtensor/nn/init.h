// Initial values of parameters. torch.nn.init. Each call takes the next stream of the thread's
// random state, so that the values do not depend on the mesh and the placements. The calls write in
// place, outside the graph, and return the tensor.
#pragma once

#include "dtrun/dtensor/autograd/tensor.h"

namespace dtrun::dtensor::nn::init {

struct Fans {
  std::int64_t in = 0;
  std::int64_t out = 0;
};
/// Of a weight [out, in, window...]. @throws Error kInvalidArgument for less than two dims
Fans fans_of(const Shape& shape);

/// Of [low, high).
const Tensor& uniform_(const Tensor& tensor, double low = 0, double high = 1);
const Tensor& normal_(const Tensor& tensor, double mean = 0, double stddev = 1);
/// Normal, of [low, high] only. @throws Error kInvalidArgument where low is not below high
const Tensor& trunc_normal_(const Tensor& tensor, double mean = 0, double stddev = 1,
                            double low = -2, double high = 2);
const Tensor& constant_(const Tensor& tensor, double value);
const Tensor& zeros_(const Tensor& tensor);
const Tensor& ones_(const Tensor& tensor);
/// Ones where row and column are the same, else zeros. @throws Error kInvalidArgument for another
/// number of dims than two
const Tensor& eye_(const Tensor& matrix);
/// `gain` times an orthogonal matrix, of [out, in * window...]: its rows are at right angles where
/// they are no more than the columns, else its columns. For layers that neither grow nor shrink
/// what they get. Computed by every rank on a CPU in f64. @throws Error kInvalidArgument for less
/// than two dims
const Tensor& orthogonal_(const Tensor& weight, double gain = 1);

/// What follows a layer. `linear`: nothing; also PyTorch's "conv1d" and its like.
enum class Nonlinearity : unsigned char { linear, sigmoid, tanh, relu, leaky_relu, selu };
/// By how much a layer's numbers are made larger for what the function after it makes smaller.
double calculate_gain(Nonlinearity nonlinearity, double negative_slope = 0.01);

/// Which variance is kept through the layers: fan_in: that of numbers, fan_out: that of gradients.
enum class FanMode : unsigned char { fan_in, fan_out };
/// Uniform, with a bound that keeps the variance. @param negative_slope of leaky_relu alone
const Tensor& kaiming_uniform_(const Tensor& weight, double negative_slope = 0,
                               FanMode mode = FanMode::fan_in,
                               Nonlinearity nonlinearity = Nonlinearity::leaky_relu);
const Tensor& kaiming_normal_(const Tensor& weight, double negative_slope = 0,
                              FanMode mode = FanMode::fan_in,
                              Nonlinearity nonlinearity = Nonlinearity::leaky_relu);
const Tensor& xavier_uniform_(const Tensor& weight, double gain = 1);
const Tensor& xavier_normal_(const Tensor& weight, double gain = 1);

}  // namespace dtrun::dtensor::nn::init
