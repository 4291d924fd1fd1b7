// Joint group: the ranks of two meshes in one group, through which elements go from one to the
// other.
#pragma once

#include <vector>

#include "dtrun/dtensor/mesh/device_mesh.h"

namespace dtrun::dtensor {

/// This rank's number in the numbering of DeviceMesh::ranks(); inside or outside of the mesh.
int global_rank_in(const DeviceMesh& mesh);

/// Of both meshes, ascending: the order of their joint group.
std::vector<int> ranks_of_both(const DeviceMesh& a, const DeviceMesh& b);

/// Made on its first use by its members; the same one afterwards. @throws Error kInvalidArgument
/// where neither mesh was made of a group that has all these ranks, nor has the default group; and
/// for two slices of one mesh that have not the same ranks, for other ranks see other slices
ProcessGroup joint_group(const DeviceMesh& a, const DeviceMesh& b);

}  // namespace dtrun::dtensor
