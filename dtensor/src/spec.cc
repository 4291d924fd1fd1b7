#include "dtrun/dtensor/spec.h"

#include <utility>

#include "dtrun/base/error.h"

namespace dtrun::dtensor {

Box Spec::local_box() const {
  return dtensor::local_box(shape, mesh.shape(), mesh.coordinate(), layout());
}

Layout Spec::layout() const {
  return {placements, shard_order};
}

std::string Spec::to_string() const {
  std::string axes;
  for (const int size : mesh.shape()) axes += (axes.empty() ? "" : ", ") + std::to_string(size);
  return std::string(tensors::dtype_short_name(dtype)) + tensors::shape_to_string(shape) + " on (" +
         axes + "): " + layout().to_string();
}

Spec make_spec(DeviceMesh mesh, Placements placements, tensors::Shape shape, tensors::DType dtype,
               ShardOrder order) {
  Layout layout = make_layout(shape, mesh.shape(), std::move(placements), std::move(order));
  for (const Placement& placement : layout.placements) {
    if (!placement.is_partial() || collectives::reduce_op_supports(placement.reduce_op(), dtype)) {
      continue;
    }
    throw base::Error(base::ErrorCode::kInvalidArgument,
                      "a tensor of " + std::string(tensors::dtype_short_name(dtype)) +
                          " cannot be " + placement.to_string(),
                      "band, bor and bxor are for integers and bool, avg is not for bool", "");
  }
  return {std::move(mesh), std::move(layout.placements), std::move(layout.order), std::move(shape),
          dtype};
}

}  // namespace dtrun::dtensor
