// Moves a tensor to another mesh by a plan of plan_cross_mesh.
#pragma once

#include "dtrun/base/call_site.h"
#include "dtrun/dtensor/mesh/spec.h"
#include "dtrun/dtensor/plan/cross_mesh_plan.h"
#include "dtrun/tensor/tensor.h"
#include "move/pending_move.h"

namespace dtrun::dtensor {

/// What this rank sends and receives.
Traffic traffic_across(const CrossMeshPlan& plan, const Spec& from, const Spec& to);

/// This rank's part on the other mesh; one without elements outside of it. Between device types
/// the elements go over the host. Collective over the ranks of both meshes.
/// @param local this rank's part on the first mesh @throws Error kInvalidArgument where no group
/// has the ranks of both meshes, and for two slices of one mesh that have not the same ranks
tensors::LocalTensor redistribute_across(const Spec& from, const Spec& to,
                                         const tensors::LocalTensor& local);
/// The same while the program goes on. @param local is not to be written to until it is over
PendingMove start_across(const Spec& from, const Spec& to, const tensors::LocalTensor& local,
                         const collectives::CallOptions& options = {.async = true});

}  // namespace dtrun::dtensor
