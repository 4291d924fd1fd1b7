#include "dtrun/dtensor/mesh/spec.h"

#include <mutex>
#include <utility>

#include "dtrun/base/error.h"
#include "mesh/mesh_body.h"
#include "mesh/spare_owners.h"

namespace dtrun::dtensor {

Spec::Spec(base::Counted<SpecBody> body) : body_(body.give_up()) {}

SpecBody* Spec::shared(SpecBody* body) {
  // Who copies a spec owns one: unlike share(), this need not ask.
  return base::Counted<SpecBody>::share(body).give_up();
}

void Spec::drop(SpecBody* body) noexcept {
  if (!SpareOwners::keep(body)) base::Counted<SpecBody> last(body);
}

DeviceMesh Spec::mesh() const {
  return body_->mesh();
}
const Layout& Spec::layout() const {
  return body_->layout;
}
const Placements& Spec::placements() const {
  return body_->placements;
}
const ShardOrder& Spec::shard_order() const {
  return body_->order;
}
const tensors::Shape& Spec::shape() const {
  return body_->shape;
}
tensors::DType Spec::dtype() const {
  return body_->dtype;
}
const Box& Spec::local_box() const {
  return body_->box;
}
bool Spec::is_outside() const {
  return body_->is_outside;
}

std::string Spec::to_string() const {
  if (!body_) return "local";
  std::string axes;
  for (const int size : body_->mesh().shape()) {
    axes += (axes.empty() ? "" : ", ") + std::to_string(size);
  }
  return std::string(tensors::dtype_short_name(dtype())) + tensors::shape_to_string(shape()) +
         " on (" + axes + "): " + layout().to_string();
}

bool operator==(const Spec& a, const Spec& b) {
  if (a.body_ == b.body_) return true;
  // Equal specs of one mesh share one body, so that pointers can be compared.
  if (!a.body_ || !b.body_ || a.body_->mesh().body() == b.body_->mesh().body()) return false;
  return a.body_->mesh() == b.body_->mesh() && a.layout() == b.layout() && a.shape() == b.shape() &&
         a.dtype() == b.dtype();
}

Spec make_spec(const DeviceMesh& mesh, const Placements& placements, const tensors::Shape& shape,
               tensors::DType dtype, const ShardOrder& order) {
  return make_spec(mesh, make_layout(shape, mesh.shape(), placements, order), shape, dtype);
}

Spec make_spec(const DeviceMesh& mesh, const Layout& layout, const tensors::Shape& shape,
               tensors::DType dtype) {
  for (std::size_t axis = 0; axis < layout.axes(); ++axis) {
    if (!layout.is_partial(axis)) continue;
    const Placement partial = layout[axis];
    if (collectives::reduce_op_supports(partial.reduce_op(), dtype)) continue;
    throw base::Error(base::ErrorCode::kInvalidArgument,
                      "a tensor of " + std::string(tensors::dtype_short_name(dtype)) +
                          " cannot be " + partial.to_string(),
                      "band, bor and bxor are for integers and bool, avg is not for bool",
                      "Partial() of another reduction, or to() before");
  }
  MeshBody& body = *mesh.body();
  const std::lock_guard lock(body.mutex);
  return Spec(body.specs.intern(body, layout, shape, dtype));
}

}  // namespace dtrun::dtensor
