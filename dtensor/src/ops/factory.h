// Factory: a distributed tensor of which every rank makes its own part.
#pragma once

#include <functional>

#include "dtrun/dtensor/autograd/tensor.h"

namespace dtrun::dtensor {

/// @param part of a box of the whole, of `dtype`, on this thread's current device of the mesh's
/// type; where the placements are Partial, what its terms add up to
Tensor make_parts(
    const Shape& shape, const DeviceMesh& mesh, const Placements& placements, DType dtype,
    const std::function<LocalTensor(const Box& box, tensors::TensorOptions options)>& part);

}  // namespace dtrun::dtensor
