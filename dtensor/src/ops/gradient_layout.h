// How gradients lie that come from outside of a mesh, or go there.
#pragma once

#include <string_view>

#include "dtrun/dtensor/mesh/spec.h"

namespace dtrun::dtensor {

/// @param call that the user made @param spec of the tensor whose gradient it is
/// @param placements as the user's grad_placements
/// @throws Error kInvalidArgument where a rank's part would have another shape than the tensor's
Spec spec_of_gradient(std::string_view call, const Spec& spec, const Placements& placements);

}  // namespace dtrun::dtensor
