// Reductions and scans other than sum and mean (basic.h), with PyTorch's values, dtypes and
// gradients, on every layout. Without dims all of them are reduced. A dim that is sharded is
// reduced on each rank first, so that only tensors of the result's size are communicated.
#pragma once

#include "dtrun/dtensor/autograd/tensor.h"

namespace dtrun::dtensor {

Tensor prod(const Tensor& a);
Tensor prod(const Tensor& a, int dim, bool keepdim = false);
/// Of a.to(dtype), in that dtype, as sum's and mean's (basic.h).
Tensor prod(const Tensor& a, DType dtype);
Tensor prod(const Tensor& a, int dim, bool keepdim, DType dtype);
/// Whether any or all elements are not 0: bool, and u8 for u8. No gradient.
Tensor any(const Tensor& a, const std::vector<int>& dims = {}, bool keepdim = false);
Tensor all(const Tensor& a, const std::vector<int>& dims = {}, bool keepdim = false);

// Maximum and minimum. nan if any element is nan. @throws Error kInvalidArgument for no elements.
// Equal elements share the gradient.
Tensor amax(const Tensor& a, const std::vector<int>& dims = {}, bool keepdim = false);
Tensor amin(const Tensor& a, const std::vector<int>& dims = {}, bool keepdim = false);
Tensor max(const Tensor& a);
Tensor min(const Tensor& a);
/// The first of equal elements, which gets the whole gradient.
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
/// The same by PyTorch's name. Where the namespace std is seen, too: dtrun::std(x), or x.std().
Tensor std(const Tensor& a, const std::vector<int>& dims = {}, double correction = 1,
           bool keepdim = false);
/// torch.linalg.vector_norm: any power, also 0 (the number of nonzero elements) and the infinities.
/// The gradient is 0 where the norm is 0.
Tensor norm(const Tensor& a, double power = 2, const std::vector<int>& dims = {},
            bool keepdim = false);
Tensor logsumexp(const Tensor& a, const std::vector<int>& dims = {}, bool keepdim = false);

/// Element i is the sum or the product of those up to i along dim.
Tensor cumsum(const Tensor& a, int dim);
Tensor cumprod(const Tensor& a, int dim);
Tensor cumsum(const Tensor& a, int dim, DType dtype);  ///< of a.to(dtype), in that dtype
Tensor cumprod(const Tensor& a, int dim, DType dtype);

}  // namespace dtrun::dtensor
