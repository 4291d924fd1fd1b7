// Products of matrices and vectors, all of matmul and einsum's making.
#pragma once

#include <string_view>

#include "dtrun/dtensor/autograd/tensor.h"

namespace dtrun::dtensor {

Tensor mm(const Tensor& a, const Tensor& b);   ///< [n, k] [k, m]
Tensor bmm(const Tensor& a, const Tensor& b);  ///< [b, n, k] [b, k, m]
Tensor mv(const Tensor& a, const Tensor& b);   ///< [n, k] [k]
Tensor dot(const Tensor& a, const Tensor& b);  ///< [k] [k]

struct ProductSum {
  Scalar beta = 1;
  Scalar alpha = 1;
};
/// beta * sum + alpha * a b; `sum` broadcasts.
Tensor addmm(const Tensor& sum, const Tensor& a, const Tensor& b, ProductSum factors = {});
Tensor baddbmm(const Tensor& sum, const Tensor& a, const Tensor& b, ProductSum factors = {});

/// torch.einsum: "ij,jk->ik"; without "->" the letters that stand once, sorted. The operands are
/// multiplied from the left to the right, two at a time, each by one matmul. @throws Error
/// kInvalidArgument naming what does not fit; an ellipsis, and a letter twice in one operand, are
/// refused
Tensor einsum(std::string_view equation, const Tensors& operands);

}  // namespace dtrun::dtensor
