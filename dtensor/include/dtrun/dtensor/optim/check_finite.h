// check_finite: which parameter became nan or infinite, and in which step: for the moment at which
// the loss is no number, or for every step, of which it takes one look at each gradient.
//
//     if (!std::isfinite(loss.item())) optim::check_finite(*model, step, mesh);
#pragma once

#include <cstdint>
#include <optional>

#include "dtrun/dtensor/mesh/device_mesh.h"
#include "dtrun/dtensor/nn/module.h"

namespace dtrun::dtensor::optim {

/// Looks at this rank's parts of the parameters, in their order, and at those of their gradients.
/// @param ranks not given: nothing is sent, and a rank knows of its own parts only. Given: all
/// ranks of the mesh throw what the first of them has found; collective
/// @throws Error kInvalidArgument naming the first parameter that is not finite, or whose gradient
/// is not, the step and the rank
void check_finite(const nn::Module& model, std::int64_t step,
                  const std::optional<DeviceMesh>& ranks = std::nullopt,
                  Tensor::Site site = Tensor::Site::current());

}  // namespace dtrun::dtensor::optim
