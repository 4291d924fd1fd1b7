// Spec: all that is known of a distributed tensor without its data: mesh, placements, shard order,
// global shape and dtype. A value.
#pragma once

#include <string>

#include "dtrun/dtensor/device_mesh.h"
#include "dtrun/dtensor/placement.h"
#include "dtrun/dtensor/shard_layout.h"
#include "dtrun/tensor/dtype.h"
#include "dtrun/tensor/shape.h"

namespace dtrun::dtensor {

struct Spec {
  DeviceMesh mesh;
  Placements placements;   ///< normalized: dims >= 0
  ShardOrder shard_order;  ///< always filled; the default one is ascending
  tensors::Shape shape;    ///< global
  tensors::DType dtype = tensors::DType::f32;

  /// This rank's box.
  Box local_box() const;
  Layout layout() const;
  /// "f32[8, 4] on (2, 2): [S(0), R]".
  std::string to_string() const;
  friend bool operator==(const Spec&, const Spec&) = default;
};

/// Fills the shard order and normalizes dims. @throws Error kInvalidArgument: as many placements as
/// axes, dims in range, partial ops on different axes that do not mix (only sum with avg does)
Spec make_spec(DeviceMesh mesh, Placements placements, tensors::Shape shape, tensors::DType dtype,
               ShardOrder order = {});

}  // namespace dtrun::dtensor
