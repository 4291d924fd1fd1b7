// The factor of a premul_sum: a number by which a rank's elements are multiplied before they are
// summed, as NCCL does it: rounded to the elements' dtype, as are the products. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "dtrun/collectives/reduce_op.h"
#include "dtrun/tensor/tensor.h"

namespace dtrun::collectives {

/// @throws Error kInvalidArgument where premul_sum has none, or another op, or none at all, has one
void require_factor(ReduceOp op, const std::optional<double>& factor);

/// The factor as one element. @param dtype floating point
struct FactorElement {
  alignas(double) std::byte bytes[sizeof(double)] = {};
};
FactorElement factor_element(double factor, tensors::DType dtype);

/// Multiplies it where it lies.
void scale_in_place(const tensors::LocalTensor& tensor, double factor);

/// The products, in memory of their own.
std::vector<tensors::LocalTensor> scaled_copies(std::span<const tensors::LocalTensor> tensors,
                                                double factor);

}  // namespace dtrun::collectives
