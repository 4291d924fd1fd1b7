#include "parallel/sharded_spec.h"

namespace dtrun::dtensor {

Spec sharded_spec(const DeviceMesh& mesh, const Spec& whole, const tensors::Shape& shape,
                  tensors::DType dtype, int dim) {
  const int own_axes = mesh.ndim();
  DeviceMesh all = mesh;
  Placements placements(static_cast<std::size_t>(own_axes - 1), Replicate());
  placements.push_back(Shard(dim));
  ShardOrder order;
  if (whole) {
    all = DeviceMesh::concatenate({mesh, whole.mesh()});
    for (const Placement& placement : whole.placements()) placements.push_back(placement);
    for (const auto& [cut, cut_by] : whole.shard_order()) {
      for (const int axis : cut_by) order[cut].push_back(axis + own_axes);
    }
  }
  order[dim].push_back(own_axes - 1);
  return make_spec(all, placements, shape, dtype, order);
}

}  // namespace dtrun::dtensor
