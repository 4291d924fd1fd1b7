// Moves a tensor to another mesh by a plan of plan_cross_mesh.
#pragma once

#include <memory>
#include <string_view>

#include "dtrun/base/call_site.h"
#include "dtrun/dtensor/mesh/spec.h"
#include "dtrun/dtensor/plan/cross_mesh_plan.h"
#include "dtrun/dtensor/plan/memory.h"
#include "dtrun/tensor/tensor.h"
#include "move/pending_move.h"

namespace dtrun::dtensor {

struct Crossing;
class KeptCrossing;

/// What this rank sends and receives.
Traffic traffic_across(const CrossMeshPlan& plan, const Spec& from, const Spec& to);
/// What this rank's tensors take meanwhile.
PlanMemory memory_across(const CrossMeshPlan& plan, const Spec& from, const Spec& to);

/// A move to another mesh that a program asks for.
struct AskedCrossing {
  Spec to;
  std::shared_ptr<const Crossing> crossing;  ///< null where this rank is in neither mesh
};
/// The first mesh remembers what was asked for before. @throws Error as asked_spec;
/// kInvalidArgument where no group has the ranks of both meshes, and for two slices of one mesh
/// that have not the same ranks
AskedCrossing asked_crossing(std::string_view call, const base::CallSite& site, const Spec& from,
                             const DeviceMesh& mesh, const Placements& placements,
                             const ShardOrder& order);
/// This rank's part on the other mesh; one without elements outside of it. Between device types
/// the elements go over the host. Collective over the ranks of both meshes, which compare what they
/// ask for; but a rank waits only for those who send it something.
/// @param local this rank's part on the first mesh
tensors::LocalTensor redistribute_across(const Spec& from, const AskedCrossing& asked,
                                         const tensors::LocalTensor& local);
/// The same of a move that the tensor has kept.
tensors::LocalTensor redistribute_again(const Spec& from, const KeptCrossing& kept,
                                        const tensors::LocalTensor& local);
/// The same while the program goes on. @param local is not to be written to until it is over
PendingMove start_across(const Spec& from, const Spec& to, const tensors::LocalTensor& local,
                         const collectives::CallOptions& options = {.async = true});

}  // namespace dtrun::dtensor
