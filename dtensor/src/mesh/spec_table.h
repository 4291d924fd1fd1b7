// SpecTable: the one body of every spec of a mesh. A body stays while anybody has it, and as long
// after that as there is room; while it is in use it keeps the mesh. Its owner's mutex guards it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>

#include "dtrun/base/counted.h"
#include "dtrun/dtensor/layout/box.h"
#include "dtrun/dtensor/layout/layout.h"
#include "dtrun/dtensor/mesh/device_mesh.h"
#include "dtrun/tensor/dtype.h"
#include "dtrun/tensor/shape.h"
#include "mesh/number_list_hash.h"

namespace dtrun::dtensor {

class SpecBody : public base::Count {
 public:
  SpecBody(MeshBody& mesh, const Layout& layout, tensors::Shape shape, tensors::DType dtype);

  const Layout layout;
  const Placements placements;  ///< layout's
  const ShardOrder order;       ///< layout's
  const tensors::Shape shape;
  const tensors::DType dtype;
  const bool is_outside;  ///< this rank, of the mesh
  const Box box;          ///< this rank's; outside, empty in each dim
  /// from_local has worked the shape out from this rank's part alone: other ranks may have another.
  std::atomic<bool> has_guessed_shape = false;

  /// One more owner, also of a body that nobody has at present. The caller knows that the mesh
  /// lives.
  base::Counted<SpecBody> share();
  /// As share, where the caller holds the mesh's mutex.
  base::Counted<SpecBody> share_locked();
  /// Of one that is in use: as long as it is.
  const DeviceMesh& mesh() const { return mesh_in_use_; }

 private:
  friend class base::Counted<SpecBody>;
  /// The first owner takes the mesh along, the last one lets go of it, both under its mutex.
  static void drop(SpecBody* body) noexcept;

  MeshBody& mesh_;
  DeviceMesh mesh_in_use_;
};

class SpecTable {
 public:
  /// The caller holds the mesh's mutex. @param layout made by make_layout
  base::Counted<SpecBody> intern(MeshBody& mesh, const Layout& layout, const tensors::Shape& shape,
                                 tensors::DType dtype);

 private:
  void sweep(MeshBody& mesh);

  std::unordered_map<tensors::Dims, std::unique_ptr<SpecBody>, NumberListHash> bodies_;
  std::size_t sweep_at_ = 256;
};

}  // namespace dtrun::dtensor
