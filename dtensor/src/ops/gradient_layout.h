// How gradients lie that come from outside of a mesh, or go there.
#pragma once

#include <string_view>

#include "dtrun/dtensor/autograd/tensor.h"
#include "dtrun/dtensor/mesh/spec.h"

namespace dtrun::dtensor {

/// Cut as the tensor, in its order.
/// @param call that the user made @param spec of the tensor whose gradient it is
/// @param placements as the user's grad_placements
/// @throws Error kInvalidArgument, on all ranks alike, where another axis would cut
Spec spec_of_gradient(std::string_view call, const Spec& spec, const Placements& placements);
/// Tensor::to_local(grad_placements), for that call.
Tensor local_with_gradient(std::string_view call, const Tensor& tensor,
                           const Placements& grad_placements);

}  // namespace dtrun::dtensor
