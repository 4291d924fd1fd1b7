// KeptCrossing: a move to another mesh that a tensor went through again, as the tensor keeps it. It
// keeps that mesh alive, as a tensor there would: to take a spec that nobody has into use again
// takes as long as a part of a short message.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "dtrun/dtensor/mesh/spec.h"
#include "dtrun/tensor/tensor.h"
#include "mesh/crossing.h"
#include "mesh/mesh_body.h"
#include "move/cross_mesh.h"
#include "move/crossed_parts.h"
#include "move/redistribute.h"

namespace dtrun::dtensor {

class KeptCrossing {
 public:
  /// Whether it is all messages, which bring just the shape and dtype of the target's part.
  static bool can_keep(const AskedCrossing& asked) {
    // Outside of a mesh a number has an element all the same, which no message brings.
    return asked.crossing && asked.crossing->is_messages_only && !asked.to.shape().empty() &&
           asked.crossing->wanted.shape == asked.to.local_box().shape;
  }
  /// @param asked one that can_keep()
  /// @param local this rank's part of what moves
  KeptCrossing(const AskedCrossing& asked, const tensors::LocalTensor& local)
      : to_(asked.to),
        crossing_(asked.crossing),
        pattern_(pattern_of(asked.to.local_box().shape, asked.to.dtype())),
        target_links_(links_of(*to_.body()->mesh().body())) {
    if (!crossing_->is_plain) parts_.emplace(*crossing_, local, pattern_);
  }

  /// Whether it leads to that mesh, whose link rates are those that it was planned by.
  bool leads_to(const DeviceMesh& mesh) const {
    const std::shared_ptr<MeshBody>& target = to_.body()->mesh().body();
    return mesh.body() == target && links_of(*target) == target_links_;
  }
  /// Of the result.
  const Spec& to() const { return to_; }
  const Crossing& crossing() const { return *crossing_; }
  /// Of the result's shape and dtype, without memory for them.
  const tensors::LocalTensor& pattern() const { return pattern_; }
  /// None of a crossing that is_plain.
  const std::optional<PartPatterns>& parts() const { return parts_; }

 private:
  static std::uint32_t links_of(const MeshBody& mesh) {
    return mesh.links_set.load(std::memory_order_relaxed);
  }

  const Spec to_;
  const std::shared_ptr<const Crossing> crossing_;
  const tensors::LocalTensor pattern_;
  std::optional<PartPatterns> parts_;
  const std::uint32_t target_links_;
};

}  // namespace dtrun::dtensor
