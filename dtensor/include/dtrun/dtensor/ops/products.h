// Products of matrices and vectors, on top of matmul and einsum.
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
/// beta * sum + alpha * a b, in one pass unless the product is a sum over ranks. `sum` broadcasts
/// to the product and has its dtype. If beta is 0, `sum` is ignored, nan included. If alpha is 0,
/// f32 and f64 operands are ignored; halves are multiplied, as in PyTorch. For integers the factors
/// are truncated. @throws Error kInvalidArgument for dtypes that differ
Tensor addmm(const Tensor& sum, const Tensor& a, const Tensor& b, ProductSum factors = {});
Tensor baddbmm(const Tensor& sum, const Tensor& a, const Tensor& b, ProductSum factors = {});

/// torch.einsum: "ij,jk->ik". Without "->" the result has the letters that occur once, sorted. A
/// letter that occurs twice in one operand takes its diagonal: "ii->i", and "ii->" its trace. The
/// operands are multiplied from left to right, two at a time, each by one matmul. An ellipsis
/// stands for the dims that have no letter, which broadcast: "...ij,jk->...ik". Without "->" they
/// are the result's first dims. With "->" and no ellipsis behind it they are summed.
/// @throws Error kInvalidArgument naming what does not fit
Tensor einsum(std::string_view equation, const Tensors& operands);

}  // namespace dtrun::dtensor
