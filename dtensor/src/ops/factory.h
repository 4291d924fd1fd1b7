// Factory: a distributed tensor of which every rank makes its own part, and a tensor like another.
#pragma once

#include <functional>

#include "dtrun/dtensor/autograd/tensor.h"

namespace dtrun::dtensor {

/// @param part of a box of the whole, of `dtype`, on this thread's current device of the mesh's
/// type; where the placements are Partial, what its terms add up to
Tensor make_parts(
    const Shape& shape, const DeviceMesh& mesh, const Placements& placements, DType dtype,
    const ShardOrder& order,
    const std::function<LocalTensor(const Box& box, tensors::TensorOptions options)>& part);

/// Of a's shape, dtype, device and layout; where a is Partial, whole, for nobody needs its numbers.
/// @param part of a box of the whole
Tensor make_like(
    const Tensor& a,
    const std::function<LocalTensor(const Box& box, tensors::TensorOptions options)>& part);

}  // namespace dtrun::dtensor
