#include "parallel/sharded_spec.h"

namespace dtrun::dtensor {
namespace {

/// @param own placements along `mesh`, and by which of its axes dims are cut
Spec joined(const DeviceMesh& mesh, Placements own, const ShardOrder& own_order, const Spec& whole,
            const tensors::Shape& shape, tensors::DType dtype) {
  const int own_axes = mesh.ndim();
  DeviceMesh all = mesh;
  ShardOrder order;
  if (whole) {
    all = DeviceMesh::concatenate({mesh, whole.mesh()});
    for (const Placement& placement : whole.placements()) own.push_back(placement);
    for (const auto& [cut, cut_by] : whole.shard_order()) {
      for (const int axis : cut_by) order[cut].push_back(axis + own_axes);
    }
  }
  for (const auto& [cut, cut_by] : own_order)
    for (const int axis : cut_by) order[cut].push_back(axis);
  return make_spec(all, own, shape, dtype, order);
}

}  // namespace

Spec sharded_spec(const DeviceMesh& mesh, const Spec& whole, const tensors::Shape& shape,
                  tensors::DType dtype, int dim) {
  const int last = mesh.ndim() - 1;
  Placements placements(static_cast<std::size_t>(last), Replicate());
  placements.push_back(Shard(dim));
  return joined(mesh, std::move(placements), {{dim, {last}}}, whole, shape, dtype);
}

Spec replicated_spec(const DeviceMesh& mesh, const Spec& whole, const tensors::Shape& shape,
                     tensors::DType dtype) {
  return joined(mesh, Placements(static_cast<std::size_t>(mesh.ndim()), Replicate()), {}, whole,
                shape, dtype);
}

}  // namespace dtrun::dtensor
