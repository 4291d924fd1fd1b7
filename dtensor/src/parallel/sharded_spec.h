// Where the part of a parameter lies that is cut along an axis of ranks which had copies, and where
// one lies that they keep copies of.
#pragma once

#include "dtrun/dtensor/mesh/device_mesh.h"
#include "dtrun/dtensor/mesh/spec.h"

namespace dtrun::dtensor {

/// Shard(dim) along the last axis of `mesh`, Replicate() along those before it; as it was along
/// other axes. On a dim that another axis cuts, too, that axis cuts first: what it leaves is cut
/// once more.
/// @param whole on other axes; none: a plain tensor
Spec sharded_spec(const DeviceMesh& mesh, const Spec& whole, const tensors::Shape& shape,
                  tensors::DType dtype, int dim = 0);

/// Replicate() along all axes of `mesh`; as it was along other axes. @param whole as above
Spec replicated_spec(const DeviceMesh& mesh, const Spec& whole, const tensors::Shape& shape,
                     tensors::DType dtype);

}  // namespace dtrun::dtensor
