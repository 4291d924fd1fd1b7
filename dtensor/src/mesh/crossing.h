// Crossing: this rank's part in moving a tensor to a layout on another mesh: the plan, its
// messages, and the group that carries them. The first mesh caches it, so it must not keep either
// mesh alive.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "dtrun/collectives/process_group.h"
#include "dtrun/dtensor/mesh/spec.h"
#include "dtrun/dtensor/plan/cross_mesh_plan.h"

namespace dtrun::dtensor {

struct Crossing {
  /// Boxes of the whole tensor: box i goes to peers[i], or comes from there. Peers are ranks of the
  /// group, in the order of collectives::PeerParts.
  struct Parcels {
    std::vector<int> peers;
    std::vector<Box> boxes;
    bool is_whole = false;  ///< there is one, of all that this rank has, or is to have
  };

  CrossMeshPlan plan;
  Box given;   ///< this rank's on the first mesh, where the messages start
  Box wanted;  ///< on the second one, where they lead
  Parcels sent;
  Parcels received;
  std::vector<Box> kept;                           ///< of which this rank has the elements already
  std::optional<collectives::ProcessGroup> group;  ///< none: every rank has all that it is to have
  std::uint64_t digest = 0;  ///< of shape, dtype, meshes and layouts; the same on all ranks
  bool is_plain = false;  ///< nothing is kept, and what is sent and received is_whole, or nothing
  bool is_messages_only = false;  ///< no steps before or after, and no way over the host
  tensors::DType dtype = tensors::DType::f32;
};

PlacedLayout placed(const DeviceMesh& mesh, const Layout& layout);

/// Plans by the link rates of both meshes. Ranks are global.
CrossMeshPlan plan_across(const Spec& from, const Spec& to);

/// Cached by the mesh of `from` until the link rates of either mesh change. @throws Error
/// kInvalidArgument where no group has the ranks of both meshes, and for two slices of one mesh
/// with different ranks
std::shared_ptr<const Crossing> crossing_of(const Spec& from, const Spec& to);

}  // namespace dtrun::dtensor
