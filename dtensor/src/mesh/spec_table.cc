#include "mesh/spec_table.h"

#include <atomic>
#include <utility>

#include "mesh/mesh_body.h"

namespace dtrun::dtensor {
namespace {

/// All layouts of one mesh have the same number of axes, so one length suffices.
tensors::Dims spec_key(const Layout& layout, const tensors::Shape& shape, tensors::DType dtype) {
  tensors::Dims key = shape;
  key.push_back(static_cast<std::int64_t>(dtype));
  for (const std::int64_t word : layout.packed()) key.push_back(word);
  return key;
}

}  // namespace

SpecBody::SpecBody(MeshBody& mesh, const Layout& its_layout, tensors::Shape its_shape,
                   tensors::DType its_dtype, std::uint16_t its_mark)
    : Count(0),
      layout(its_layout),
      placements(layout.placements()),
      order(layout.order()),
      shape(std::move(its_shape)),
      dtype(its_dtype),
      mark(its_mark),
      is_outside(mesh.rank < 0),
      box(is_outside ? Box{shape, tensors::Shape(shape.size(), 0)}
                     : dtensor::local_box(shape, mesh.shape, mesh.coordinate, layout)),
      mesh_(mesh) {}

base::Counted<SpecBody> SpecBody::share() {
  if (share_if_owned()) return base::Counted<SpecBody>(this);
  const std::lock_guard lock(mesh_.mutex);
  return share_locked();
}

base::Counted<SpecBody> SpecBody::share_locked() {
  if (owners_.fetch_add(1) == 0) mesh_in_use_ = DeviceMesh(mesh_.shared_from_this());
  return base::Counted<SpecBody>(this);
}

void SpecBody::drop(SpecBody* body) noexcept {
  if (body->drop_unless_last()) return;
  DeviceMesh last;  // goes after the lock
  const std::lock_guard lock(body->mesh_.mutex);
  if (body->owners_.fetch_sub(1) == 1) last = std::move(body->mesh_in_use_);
}

base::Counted<SpecBody> SpecTable::intern(MeshBody& mesh, const Layout& layout,
                                          const tensors::Shape& shape, tensors::DType dtype) {
  tensors::Dims key = spec_key(layout, shape, dtype);
  const auto found = bodies_.find(key);
  if (found != bodies_.end()) return found->second->share_locked();
  if (bodies_.size() >= sweep_at_) sweep(mesh);
  std::unique_ptr<SpecBody>& made = bodies_[std::move(key)];
  // Of all meshes: a tensor that goes to the first spec of one and of another goes to two.
  static std::atomic<std::uint64_t> bodies_made = 0;
  const auto mark = static_cast<std::uint16_t>(1 + bodies_made++ % 0xffff);
  made = std::make_unique<SpecBody>(mesh, layout, shape, dtype, mark);
  return made->share_locked();
}

/// Programs may use ever new shapes: the table holds at most twice as many specs as are in use.
void SpecTable::sweep(MeshBody& mesh) {
  if (mesh.attachment) mesh.attachment->forget_specs();
  mesh.plans.clear();
  std::erase_if(bodies_, [](const auto& item) { return item.second->owners() == 0; });
  sweep_at_ = std::max<std::size_t>(256, 2 * bodies_.size());
}

}  // namespace dtrun::dtensor
