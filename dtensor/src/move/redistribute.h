// Running redistribute plans: the neighbour of the pure planner that moves data. Sizes are computed
// from the layouts on every rank, never negotiated, and nothing is padded.
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "dtrun/dtensor/mesh/device_mesh.h"
#include "dtrun/dtensor/mesh/spec.h"
#include "dtrun/dtensor/plan/redistribute_plan.h"
#include "dtrun/tensor/tensor.h"
#include "move/pending_move.h"

namespace dtrun::dtensor {

/// What a plan is run on.
struct PlanSite {
  const DeviceMesh& mesh;
  const tensors::Shape& global_shape;
  const SpecBody* spec = nullptr;  ///< of what is moved, where a tensor is
  const SpecBody* to = nullptr;    ///< of what it becomes, where that is known
};

/// The cheapest plan, by what the mesh's links cost.
std::vector<Step> plan_on(const PlanSite& site, const Layout& from, const Layout& to,
                          tensors::DType dtype);

/// This rank's part of the plan. `local` is left as it is; the result may share its elements where
/// no step copies. Collective along the axes of the steps.
tensors::LocalTensor run_plan(const PlanSite& site, const std::vector<Step>& steps,
                              const tensors::LocalTensor& local);

/// From one spec of a mesh to another; the mesh remembers the plan.
tensors::LocalTensor redistribute_local(const Spec& from, const Spec& to,
                                        const tensors::LocalTensor& local);

/// A step that is one collective on tensors as they are. To find that out takes longer than a part
/// of a small collective, so a remembered move keeps it. It keeps no group: the first use of a
/// group may be a collective, and a move is also remembered where none is run.
struct DirectStep {
  StepKind kind;
  int axis;
  ReduceOp op = ReduceOp::sum;
};

/// A direct step with what a tensor for its result is made of.
struct DirectMove : DirectStep {
  /// Of the result's shape and dtype, without memory for them.
  tensors::LocalTensor pattern;
};

/// A redistribution that a program asks for.
struct AskedMove {
  Spec to;
  std::shared_ptr<const std::vector<Step>> plan;
  std::optional<DirectMove> direct = {};  ///< which is the plan
};
/// Of that shape and dtype, without memory for them: what a kept move's results are made of.
tensors::LocalTensor pattern_of(const tensors::Shape& shape, tensors::DType dtype);
/// The move with its direct step, if its plan is one. No communication.
AskedMove with_direct_step(const Spec& from, AskedMove move);
/// The mesh remembers what was asked for before. @throws Error as asked_spec
AskedMove asked_move(std::string_view call, const base::CallSite& site, const Spec& from,
                     const Placements& placements, const ShardOrder& order);
/// @return where move.direct is set, a tensor of just the shape and dtype of `to`, also where an
/// observer forbade the move: the caller does not check again
tensors::LocalTensor run_move(const Spec& from, const AskedMove& move,
                              const tensors::LocalTensor& local);

/// The same while the program goes on. @param local is not to be written to until it is over
PendingMove start_redistribute(const Spec& from, const Spec& to, const tensors::LocalTensor& local);

/// A plan's steps on the spec's mesh; none outside of it.
PendingMove::Stages stages_of(const Spec& spec,
                              const std::shared_ptr<const std::vector<Step>>& plan);

/// Plans and runs.
tensors::LocalTensor redistribute_local(const PlanSite& site, const Layout& from, const Layout& to,
                                        const tensors::LocalTensor& local);

}  // namespace dtrun::dtensor
