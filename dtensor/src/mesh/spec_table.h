// SpecTable: the unique body of each spec of a mesh. A body stays while it is in use, and
// afterwards as long as there is room; while in use it keeps the mesh alive. Guarded by its owner's
// mutex.
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
  SpecBody(MeshBody& mesh, const Layout& layout, tensors::Shape shape, tensors::DType dtype,
           std::uint16_t mark);

  const Layout layout;
  const Placements placements;  ///< layout's
  const ShardOrder order;       ///< layout's
  const tensors::Shape shape;
  const tensors::DType dtype;
  const std::uint16_t mark;  ///< never 0; differs among 65,535 specs in a row of the process
  const bool is_outside;     ///< this rank, of the mesh
  const Box box;             ///< this rank's; outside, empty in each dim
  /// The shape was computed by from_local from this rank's part alone, so other ranks may have
  /// another.
  std::atomic<bool> has_guessed_shape = false;

  /// Adds an owner, also to a body without owners. The caller knows that the mesh is alive.
  base::Counted<SpecBody> share();
  /// As share(), for a caller that holds the mesh's mutex.
  base::Counted<SpecBody> share_locked();
  /// For a body that is in use; valid while it is.
  const DeviceMesh& mesh() const { return mesh_in_use_; }

 private:
  friend class base::Counted<SpecBody>;
  /// The first owner of a body adds an owner to the mesh and the last one removes it, both under
  /// the mutex.
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
