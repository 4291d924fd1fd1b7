// Joint group: a group with the ranks of two meshes, which carries elements from one to the other.
#pragma once

#include <vector>

#include "dtrun/dtensor/mesh/device_mesh.h"

namespace dtrun::dtensor {

/// This rank's global number, as in DeviceMesh::ranks(), whether it is in the mesh or not.
int global_rank_in(const DeviceMesh& mesh);

/// The ranks of both meshes, ascending, which is their order in the joint group.
std::vector<int> ranks_of_both(const DeviceMesh& a, const DeviceMesh& b);

/// Made on its first use by its members; the same one afterwards. @throws Error kInvalidArgument
/// where neither mesh was made of a group that has all these ranks, nor has the default group; and
/// for two slices of one mesh that have not the same ranks, for other ranks see other slices
ProcessGroup joint_group(const DeviceMesh& a, const DeviceMesh& b);

}  // namespace dtrun::dtensor
