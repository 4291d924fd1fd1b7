// Products of matrices, and what is added to them.
#pragma once

#include "dtrun/tensor/scalar.h"
#include "dtrun/tensor/tensor.h"

namespace dtrun::tensors {

/// torch.matmul's shapes: 1-D, 2-D and batched.
LocalTensor matmul(const LocalTensor& a, const LocalTensor& b);

struct ProductSum {
  Scalar beta = 1;
  Scalar alpha = 1;
};
/// beta * sum + alpha * a b, without a second pass over the result; `sum` broadcasts to it and has
/// its dtype. Half types are rounded once, at the end. Where beta is 0, `sum` is not read. Integers
/// truncate the factors.
LocalTensor add_matmul(const LocalTensor& sum, const LocalTensor& a, const LocalTensor& b,
                       ProductSum factors = {});

}  // namespace dtrun::tensors
