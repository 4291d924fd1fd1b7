#include "move/cross_mesh.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "dtrun/base/error.h"
#include "dtrun/tensor/ops.h"
#include "mesh/joint_group.h"
#include "mesh/mesh_body.h"
#include "move/cause.h"
#include "move/exchange.h"
#include "move/move_log.h"
#include "move/move_observer.h"
#include "move/redistribute.h"

namespace dtrun::dtensor {
namespace {

using tensors::LocalTensor;

PlacedLayout placed(const Spec& spec, const Layout& layout) {
  const DeviceMesh mesh = spec.mesh();
  return {mesh.shape(), mesh.ranks(), layout};
}

std::int64_t item_bytes(const Spec& spec) {
  return static_cast<std::int64_t>(tensors::item_size(spec.dtype()));
}

/// What goes to each rank, and comes from it.
struct Parcels {
  Parcels(std::vector<int> all_ranks, const LocalTensor& nothing)
      : ranks(std::move(all_ranks)),
        inputs(ranks.size(), nothing),
        outputs(ranks.size(), nothing) {}
  LocalTensor& of(std::vector<LocalTensor>& parcels, int rank) const {
    return parcels[static_cast<std::size_t>(std::ranges::find(ranks, rank) - ranks.begin())];
  }

  const std::vector<int> ranks;
  std::vector<LocalTensor> inputs;
  std::vector<LocalTensor> outputs;
};

/// The messages of one plan.
class Crossing {
 public:
  Crossing(std::shared_ptr<const CrossMeshPlan> plan, const Spec& from, const Spec& to)
      : plan_(std::move(plan)),
        from_(from),
        to_(to),
        messages_(from_.shape(), placed(from, plan_->given), placed(to, plan_->wanted)) {}

  /// @param local this rank's part of what the messages start from
  StartedStage start(const LocalTensor& local, const collectives::CallOptions& options,
                     const base::CallSite& call) const {
    const DeviceMesh source = from_.mesh(), target = to_.mesh();
    const tensors::Device on =
        source.device_type() == target.device_type() ? local.device() : tensors::kCpu;
    const Box before = box_on(source, plan_->given), after = box_on(target, plan_->wanted);
    const LocalTensor given = local.to(on);
    LocalTensor result = tensors::empty(after.shape, {.dtype = local.dtype(), .device = on});
    Parcels parcels(ranks_of_both(source, target), tensors::empty({0}, {local.dtype(), on}));
    const int own = global_rank_in(source);
    for (const BoxMessage& message : messages_.of_rank(own)) {
      if (message.from != own) {
        parcels.of(parcels.outputs, message.from) = shared_part(result, after, message.box);
        continue;
      }
      const LocalTensor part = shared_part(given, before, message.box);
      if (message.to == own) {
        shared_part(result, after, message.box).copy_(part);
      } else {
        parcels.of(parcels.inputs, message.to) = part;
      }
    }
    if (messages_.are_none()) return {result};
    return {result,
            joint_group(source, target).all_to_all(parcels.outputs, parcels.inputs, options, call)};
  }

 private:
  Box box_on(const DeviceMesh& mesh, const Layout& layout) const {
    const tensors::Shape& shape = from_.shape();
    if (mesh.has_this_rank()) return local_box(shape, mesh.shape(), mesh.coordinate(), layout);
    return {shape, tensors::Shape(shape.size(), 0)};
  }

  const std::shared_ptr<const CrossMeshPlan> plan_;
  const Spec from_;
  const Spec to_;
  const BoxMessages messages_;
};

/// Another rank called something else: this one says in words what it called.
void tell_own_side(const Spec& from, const Spec& to, const base::Error& error) {
  if (error.code() != base::ErrorCode::kDisagreement) return;
  const Cause* const cause = Cause::outermost();
  throw base::Error(error.code(), error.summary(),
                    error.why() + "; this rank, " + std::to_string(global_rank_in(from.mesh())) +
                        ", was in " + (cause == nullptr ? "redistribute" : cause->to_string()) +
                        " of " + from.to_string() + " to " + to.to_string(),
                    error.remedy());
}

}  // namespace

CrossMeshPlan plan_across(const Spec& from, const Spec& to) {
  return plan_cross_mesh(from.shape(), placed(from, from.layout()), placed(to, to.layout()),
                         item_bytes(from), from.mesh().body()->links, to.mesh().body()->links);
}

Traffic traffic_across(const CrossMeshPlan& plan, const Spec& from, const Spec& to) {
  Traffic traffic = BoxMessages(from.shape(), placed(from, plan.given), placed(to, plan.wanted))
                        .traffic(global_rank_in(from.mesh()));
  traffic.sent *= item_bytes(from);
  traffic.received *= item_bytes(from);
  for (const auto& [spec, steps] : {std::pair(&from, &plan.before), std::pair(&to, &plan.after)}) {
    if (spec->is_outside()) continue;
    const DeviceMesh mesh = spec->mesh();
    for (const Traffic& step :
         plan_traffic(from.shape(), mesh.shape(), *steps, mesh.coordinate(), item_bytes(from)))
      traffic += step;
  }
  return traffic;
}

PendingMove start_across(const Spec& from, const Spec& to, const LocalTensor& local,
                         const collectives::CallOptions& options) {
  if (from.is_outside() && to.is_outside()) return {{}, local};
  const auto plan = std::make_shared<const CrossMeshPlan>(plan_across(from, to));
  if (MoveObserver::any() && !MoveObserver::allow({*plan, from, to}))
    return {{}, tensors::zeros(to.local_box().shape, {local.dtype(), to.mesh().device()})};
  log_crossing({*plan, from, to});
  PendingMove::Stages stages = stages_of(from, {plan, &plan->before});
  const auto cross = [crossing = std::make_shared<Crossing>(plan, from, to),
                      call = Cause::site_of_call()](const LocalTensor& given,
                                                    const collectives::CallOptions& stage) {
    return crossing->start(given, stage, call);
  };
  stages.push_back({true, cross});
  if (from.mesh().device_type() != to.mesh().device_type()) {
    const auto bring = [to](const LocalTensor& moved, const collectives::CallOptions&) {
      return StartedStage{moved.to(to.mesh().device())};
    };
    stages.push_back({false, bring});
  }
  for (PendingMove::Stage& stage : stages_of(to, {plan, &plan->after}))
    stages.push_back(std::move(stage));
  const auto tell = [from, to](const base::Error& error) { tell_own_side(from, to, error); };
  return {std::move(stages), local, options, tell};
}

LocalTensor redistribute_across(const Spec& from, const Spec& to, const LocalTensor& local) {
  return start_across(from, to, local, {}).wait();
}

}  // namespace dtrun::dtensor
