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
/// Uniform, with a bound that keeps the variance through layers with a leaky_relu of that slope.
const Tensor& kaiming_uniform_(const Tensor& weight, double negative_slope = 0);
const Tensor& kaiming_normal_(const Tensor& weight, double negative_slope = 0);
const Tensor& xavier_uniform_(const Tensor& weight, double gain = 1);
const Tensor& xavier_normal_(const Tensor& weight, double gain = 1);

}  // namespace dtrun::dtensor::nn::init
