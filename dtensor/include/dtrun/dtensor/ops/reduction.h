// Reductions and scans beside sum and mean (ops.h): values, dtypes and gradients as PyTorch's, on
// every layout. Where dims are not named, all are reduced. What is cut along a reduced dim is
// reduced on each rank first: what travels has the size of the result.
#pragma once

#include "dtrun/dtensor/autograd/tensor.h"

namespace dtrun::dtensor {

Tensor prod(const Tensor& a);
Tensor prod(const Tensor& a, int dim, bool keepdim = false);
/// Whether any or all elements are not 0: bool, and u8 for u8. No gradient.
Tensor any(const Tensor& a, const std::vector<int>& dims = {}, bool keepdim = false);
Tensor all(const Tensor& a, const std::vector<int>& dims = {}, bool keepdim = false);

// The greatest and the least: nan is both. Of no elements: Error kInvalidArgument. Equal ones share
// the gradient.
Tensor amax(const Tensor& a, const std::vector<int>& dims = {}, bool keepdim = false);
Tensor amin(const Tensor& a, const std::vector<int>& dims = {}, bool keepdim = false);
Tensor max(const Tensor& a);
Tensor min(const Tensor& a);
/// Of several the first, which has the whole gradient.
struct Extremes {
  Tensor values;
  Tensor indices;  ///< i64, in the whole tensor
};
Extremes max(const Tensor& a, int dim, bool keepdim = false);
Extremes min(const Tensor& a, int dim, bool keepdim = false);
/// i64. Without a dim: in the row-major order of the whole tensor.
Tensor argmax(const Tensor& a);
Tensor argmin(const Tensor& a);
Tensor argmax(const Tensor& a, int dim, bool keepdim = false);
Tensor argmin(const Tensor& a, int dim, bool keepdim = false);

// Floating point only.
/// The sum of squared distances from the mean, divided by the number of elements - correction.
Tensor var(const Tensor& a, const std::vector<int>& dims = {}, double correction = 1,
           bool keepdim = false);
/// torch.std: the root of var. Its gradient is 0 where all elements are equal.
Tensor stddev(const Tensor& a, const std::vector<int>& dims = {}, double correction = 1,
              bool keepdim = false);
/// torch.linalg.vector_norm: any power, 0 (how many are not 0) and the infinities included. The
/// gradient is 0 where the norm is.
Tensor norm(const Tensor& a, double power = 2, const std::vector<int>& dims = {},
            bool keepdim = false);
Tensor logsumexp(const Tensor& a, const std::vector<int>& dims = {}, bool keepdim = false);

/// Element i is the sum or the product of those up to i along dim.
Tensor cumsum(const Tensor& a, int dim);
Tensor cumprod(const Tensor& a, int dim);

}  // namespace dtrun::dtensor
