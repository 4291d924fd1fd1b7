// Crossing: how this rank takes part in moving a tensor from a layout on one mesh to a layout on
// another: the plan, its messages, and the group that they go through. The first mesh remembers it,
// so it holds neither mesh.
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
  enum class Way : std::uint8_t { sent, received, kept };
  struct Parcel {
    Way way;
    std::size_t peer;  ///< its place in the group
    Box box;           ///< of the whole tensor
  };

  CrossMeshPlan plan;
  Box given;   ///< this rank's on the first mesh, where the messages start
  Box wanted;  ///< on the second one, where they lead
  std::vector<Parcel> parcels;
  std::size_t ranks = 0;                           ///< of the group
  std::optional<collectives::ProcessGroup> group;  ///< none: every rank has all that it is to have
  std::uint64_t digest = 0;  ///< of shape, dtype, meshes and layouts; the same on all ranks
};

PlacedLayout placed(const DeviceMesh& mesh, const Layout& layout);

/// By what the links of both meshes cost. Ranks are global ones.
CrossMeshPlan plan_across(const Spec& from, const Spec& to);

/// Remembered by the mesh of `from`, as long as the links of both are the same. @throws Error
/// kInvalidArgument where no group has the ranks of both meshes, and for two slices of one mesh
/// that have not the same ranks
std::shared_ptr<const Crossing> crossing_of(const Spec& from, const Spec& to);

}  // namespace dtrun::dtensor
