// Views that are composed of Tensor's methods.
#pragma once

#include "dtrun/dtensor/autograd/tensor.h"

namespace dtrun::dtensor {

/// Joins the dims from start to end into one. A 0-dim tensor becomes [1].
Tensor flatten(const Tensor& a, int start_dim = 0, int end_dim = -1);
/// Splits `dim` into several; one size may be -1.
Tensor unflatten(const Tensor& a, int dim, const Shape& sizes);
Tensor movedim(const Tensor& a, int source, int destination);
/// One tensor, without the dim, for each index in it.
Tensors unbind(const Tensor& a, int dim = 0);
/// A copy, `repeats` times along each dim; more repeats than dims put new dims first.
Tensor repeat(const Tensor& a, const Shape& repeats);

}  // namespace dtrun::dtensor
