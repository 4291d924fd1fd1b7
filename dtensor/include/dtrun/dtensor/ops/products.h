// Products of matrices and vectors, all of matmul and einsum's making.
#pragma once

#include <string_view>

#include "dtrun/dtensor/autograd/tensor.h"
#include "dtrun/tensor/ops/matmul.h"

namespace dtrun::dtensor {

Tensor mm(const Tensor& a, const Tensor& b);   ///< [n, k] [k, m]
Tensor bmm(const Tensor& a, const Tensor& b);  ///< [b, n, k] [b, k, m]
Tensor mv(const Tensor& a, const Tensor& b);   ///< [n, k] [k]
Tensor dot(const Tensor& a, const Tensor& b);  ///< [k] [k]

using tensors::ProductSum;
/// beta * sum + alpha * a b, in one pass unless ranks have to add up parts of the product; `sum`
/// broadcasts to it and has its dtype. Where beta is 0, `sum` counts for nothing, nan included.
/// Where alpha is 0, so do f32 and f64 operands; halves are multiplied, as in PyTorch. Integers
/// truncate the factors. @throws Error kInvalidArgument for dtypes that differ
Tensor addmm(const Tensor& sum, const Tensor& a, const Tensor& b, ProductSum factors = {});
Tensor baddbmm(const Tensor& sum, const Tensor& a, const Tensor& b, ProductSum factors = {});

/// torch.einsum: "ij,jk->ik"; without "->" the letters that stand once, sorted. A letter twice in
/// one operand is its diagonal: "ii->i", and "ii->" its sum. The operands are multiplied from the
/// left to the right, two at a time, each by one matmul. @throws Error kInvalidArgument naming what
/// does not fit; an ellipsis is refused
Tensor einsum(std::string_view equation, const Tensors& operands);

}  // namespace dtrun::dtensor
