// Functions of each element by itself, as PyTorch's: values, dtypes and gradients. Integers become
// f32 where the function is no integer's.
#pragma once

#include "dtrun/dtensor/tensor.h"
#include "dtrun/tensor/ops/pointwise.h"

namespace dtrun::dtensor {

using tensors::GeluForm;

Tensor abs(const Tensor& a);
Tensor sign(const Tensor& a);
Tensor square(const Tensor& a);
Tensor floor(const Tensor& a);
Tensor ceil(const Tensor& a);
Tensor round(const Tensor& a);  ///< ties to even
Tensor trunc(const Tensor& a);
Tensor reciprocal(const Tensor& a);
Tensor sqrt(const Tensor& a);
Tensor rsqrt(const Tensor& a);
Tensor exp(const Tensor& a);
Tensor log(const Tensor& a);
Tensor log2(const Tensor& a);
Tensor log10(const Tensor& a);
Tensor log1p(const Tensor& a);
Tensor expm1(const Tensor& a);
Tensor sin(const Tensor& a);
Tensor cos(const Tensor& a);
Tensor tan(const Tensor& a);
Tensor sinh(const Tensor& a);
Tensor cosh(const Tensor& a);
Tensor tanh(const Tensor& a);
Tensor asin(const Tensor& a);
Tensor acos(const Tensor& a);
Tensor atan(const Tensor& a);
Tensor erf(const Tensor& a);
Tensor erfc(const Tensor& a);
Tensor sigmoid(const Tensor& a);

Tensor relu(const Tensor& a);
Tensor leaky_relu(const Tensor& a, double slope = 0.01);
Tensor gelu(const Tensor& a, GeluForm form = GeluForm::erf);
Tensor silu(const Tensor& a);
Tensor softplus(const Tensor& a, double beta = 1, double threshold = 20);

// bool results; no gradient.
Tensor eq(const Tensor& a, const Tensor& b);
Tensor ne(const Tensor& a, const Tensor& b);
Tensor lt(const Tensor& a, const Tensor& b);
Tensor le(const Tensor& a, const Tensor& b);
Tensor gt(const Tensor& a, const Tensor& b);
Tensor ge(const Tensor& a, const Tensor& b);
Tensor eq(const Tensor& a, Scalar b);
Tensor ne(const Tensor& a, Scalar b);
Tensor lt(const Tensor& a, Scalar b);
Tensor le(const Tensor& a, Scalar b);
Tensor gt(const Tensor& a, Scalar b);
Tensor ge(const Tensor& a, Scalar b);
Tensor isnan(const Tensor& a);
Tensor isinf(const Tensor& a);
Tensor isfinite(const Tensor& a);
Tensor logical_not(const Tensor& a);
Tensor logical_and(const Tensor& a, const Tensor& b);
Tensor logical_or(const Tensor& a, const Tensor& b);
Tensor logical_xor(const Tensor& a, const Tensor& b);

/// Of each element the one that `condition`, of bool, says.
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);
/// nan wins; equal ones share the gradient.
Tensor maximum(const Tensor& a, const Tensor& b);
Tensor minimum(const Tensor& a, const Tensor& b);
Tensor zeros_like(const Tensor& a);

}  // namespace dtrun::dtensor
