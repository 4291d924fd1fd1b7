// planned_mesh(): a mesh of ranks that need not exist, for explain(): what operators would send on
// a thousand ranks is told by one process without a launcher.
#pragma once

#include <string>
#include <vector>

#include "dtrun/dtensor/mesh/device_mesh.h"

namespace dtrun::dtensor {

/// This process stands for one of the ranks: tensors on the mesh have that rank's shapes. What
/// would communicate throws Error kUsage, but for operators within explain(). The mesh is equal to
/// no other one. Tensors are best made while a tensors::ShapesOnly stands: then they take addresses
/// and no memory. Links are those of
/// one machine until set_links(). No communication.
/// @param shape at most 2^24 ranks @param rank row by row through the mesh
/// @throws Error kInvalidArgument for a size below 1, too many ranks, names that are not one per
/// axis, and a rank that is not in the mesh
DeviceMesh planned_mesh(const std::vector<int>& shape, std::vector<std::string> axis_names = {},
                        int rank = 0, tensors::DeviceType device_type = tensors::DeviceType::cpu);

}  // namespace dtrun::dtensor
