#include "dtrun/dtensor/dtensor.h"

#include <ostream>
#include <utility>

#include "dtrun/base/check.h"
#include "dtrun/base/error.h"
#include "redistribute.h"

namespace dtrun::dtensor {
namespace {

using base::Error;
using base::ErrorCode;
using tensors::Shape;

/// The global shape whose even cut gives every rank the local one.
Shape grown_shape(Shape shape, const Spec& local_spec) {
  for (std::size_t axis = 0; axis < local_spec.placements.size(); ++axis) {
    const Placement& placement = local_spec.placements[axis];
    if (!placement.is_shard()) continue;
    shape[static_cast<std::size_t>(placement.dim())] *=
        local_spec.mesh.size(static_cast<int>(axis));
  }
  return shape;
}

void check_local(const LocalTensor& local, const DeviceMesh& mesh) {
  if (!local.defined()) {
    throw Error(ErrorCode::kInvalidArgument, "from_local got an undefined tensor", "",
                "pass an empty tensor where this rank holds nothing");
  }
  if (local.device().type != mesh.device_type()) {
    throw Error(ErrorCode::kInvalidArgument,
                "a tensor on " + local.device().to_string() + " does not fit " + mesh.to_string(),
                "", "move it with to(Device), or make the mesh for that device type");
  }
}

}  // namespace

DTensor::DTensor(Spec spec, LocalTensor local) : spec_(std::move(spec)), local_(std::move(local)) {
  DT_CHECK(local_.shape() == spec_.local_box().shape);
  DT_CHECK(local_.dtype() == spec_.dtype);
}

DTensor DTensor::from_local(const LocalTensor& local, const DeviceMesh& mesh, Placements placements,
                            FromLocal options) {
  check_local(local, mesh);
  if (!options.has_shape) {
    options.shape =
        grown_shape(local.shape(), make_spec(mesh, placements, local.shape(), local.dtype()));
  }
  Spec spec = make_spec(mesh, std::move(placements), std::move(options.shape), local.dtype(),
                        std::move(options.shard_order));
  const Shape expected = spec.local_box().shape;
  if (local.shape() != expected) {
    throw Error(ErrorCode::kInvalidArgument,
                "the local tensor of rank " + std::to_string(mesh.rank()) + " has the shape " +
                    tensors::shape_to_string(local.shape()),
                spec.to_string() + " gives it " + tensors::shape_to_string(expected),
                "cut as torch.chunk does: every chunk but the last ones has ceil(n / ranks)");
  }
  return DTensor(std::move(spec), local);
}

LocalTensor DTensor::full_tensor() const {
  return redistribute(Placements(placements().size(), Replicate())).to_local();
}

DTensor DTensor::redistribute(const Placements& placements, const ShardOrder& order) const {
  Spec to = make_spec(spec_.mesh, placements, spec_.shape, spec_.dtype, order);
  LocalTensor local =
      redistribute_local({spec_.mesh, spec_.shape}, spec_.layout(), to.layout(), local_);
  return DTensor(std::move(to), std::move(local));
}

std::string DTensor::to_string() const {
  std::string text = "DTensor(local_tensor=" + local_.to_string() +
                     ", device_mesh=" + spec_.mesh.to_string() + ", placements=(";
  for (std::size_t i = 0; i < spec_.placements.size(); ++i) {
    text += (i == 0 ? "" : ", ") + spec_.placements[i].repr();
  }
  return text + (spec_.placements.size() == 1 ? ",))" : "))");
}

std::ostream& operator<<(std::ostream& out, const DTensor& tensor) {
  return out << tensor.to_string();
}

}  // namespace dtrun::dtensor
