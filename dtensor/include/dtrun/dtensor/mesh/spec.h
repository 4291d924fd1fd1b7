// Spec: the mesh, layout, global shape and dtype of a distributed tensor. A handle of eight bytes.
// The mesh keeps one body for equal specs, so that they have one address. Thread-safe.
#pragma once

#include <string>
#include <utility>

#include "dtrun/base/counted.h"
#include "dtrun/dtensor/layout/box.h"
#include "dtrun/dtensor/layout/layout.h"
#include "dtrun/dtensor/layout/placement.h"
#include "dtrun/dtensor/mesh/device_mesh.h"
#include "dtrun/tensor/dtype.h"
#include "dtrun/tensor/shape.h"

namespace dtrun::dtensor {

class SpecBody;

class Spec {
 public:
  /// None: what a plain local tensor has.
  Spec() = default;
  explicit Spec(base::Counted<SpecBody> body);
  Spec(const Spec& other) : body_(other.body_ == nullptr ? nullptr : shared(other.body_)) {}
  Spec(Spec&& other) noexcept : body_(std::exchange(other.body_, nullptr)) {}
  Spec& operator=(Spec other) noexcept {
    std::swap(body_, other.body_);
    return *this;
  }
  ~Spec() {
    if (body_ != nullptr) drop(body_);
  }

  explicit operator bool() const { return body_ != nullptr; }
  DeviceMesh mesh() const;
  const Layout& layout() const;
  const Placements& placements() const;   ///< normalized: dims >= 0
  const ShardOrder& shard_order() const;  ///< always filled
  const tensors::Shape& shape() const;    ///< global
  tensors::DType dtype() const;
  /// This rank's box; outside of the mesh, empty in each dim.
  const Box& local_box() const;
  /// Whether this rank is outside of the mesh.
  bool is_outside() const;
  /// "f32[8, 4] on (2, 2): [S(0), R]".
  std::string to_string() const;
  /// Also of meshes that are equal without being one.
  friend bool operator==(const Spec& a, const Spec& b);

  SpecBody* body() const { return body_; }

 private:
  static SpecBody* shared(SpecBody* body);
  static void drop(SpecBody* body) noexcept;

  SpecBody* body_ = nullptr;  ///< counted
};

/// Fills the shard order and normalizes dims. @throws Error kInvalidArgument: as many placements as
/// axes, dims in range, partial ops on different axes that do not mix (only sum with avg does)
Spec make_spec(const DeviceMesh& mesh, const Placements& placements, const tensors::Shape& shape,
               tensors::DType dtype, const ShardOrder& order = {});
/// @param layout made by make_layout for this shape and mesh
Spec make_spec(const DeviceMesh& mesh, const Layout& layout, const tensors::Shape& shape,
               tensors::DType dtype);

}  // namespace dtrun::dtensor
