// add_matmul: what addmm, baddbmm and linear are.
#pragma once

#include "dtrun/dtensor/autograd/tensor.h"
#include "dtrun/tensor/ops/matmul.h"

namespace dtrun::dtensor {

/// beta * sum + alpha * a b, of matmul's shapes; `sum` broadcasts to the product.
Tensor add_matmul(const Tensor& sum, const Tensor& a, const Tensor& b,
                  tensors::ProductSum factors = {});

}  // namespace dtrun::dtensor
