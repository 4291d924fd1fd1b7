// add_matmul: what addmm, baddbmm and linear are.
#pragma once

#include <cstdint>

#include "dtrun/dtensor/autograd/tensor.h"
#include "dtrun/tensor/ops/matmul.h"

namespace dtrun::dtensor {

/// The call that the program made: logs, traces and explain() name it.
enum class AddMatmulFor : std::uint8_t { addmm, baddbmm, linear };

/// beta * sum + alpha * a b, of matmul's shapes; `sum` broadcasts to the product.
Tensor add_matmul(AddMatmulFor as, const Tensor& sum, const Tensor& a, const Tensor& b,
                  tensors::ProductSum factors = {});

}  // namespace dtrun::dtensor
