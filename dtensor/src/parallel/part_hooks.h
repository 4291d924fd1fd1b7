// Hooks that tell what the plain tensors of a module's forward are parts of (random_part.h).
#pragma once

#include <memory>

#include "autograd/random_part.h"
#include "dtrun/dtensor/mesh/device_mesh.h"
#include "dtrun/dtensor/nn/module.h"

namespace dtrun::dtensor {

/// In its forward, unless a module around it has told the same already.
void tell_part(nn::Module& module, const std::shared_ptr<const RandomPart>& part);

/// Each rank of the mesh has samples of its own, as many as the others.
std::shared_ptr<const RandomPart> part_of_samples(const DeviceMesh& mesh);

}  // namespace dtrun::dtensor
