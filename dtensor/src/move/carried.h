// What the transports of a mesh will carry for the steps of a redistribution, as its groups tell.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "dtrun/dtensor/mesh/device_mesh.h"
#include "dtrun/dtensor/plan/redistribute_plan.h"

namespace dtrun::dtensor {

/// Bytes that this rank sends. nullopt: outside of the mesh, on a mesh of other devices, or a
/// group's backend cannot tell.
std::optional<std::int64_t> bytes_to_carry(const DeviceMesh& mesh, const tensors::Shape& shape,
                                           tensors::DType dtype, const std::vector<Step>& steps);

}  // namespace dtrun::dtensor
