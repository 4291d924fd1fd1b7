#include "move/cross_mesh.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "dtrun/base/error.h"
#include "dtrun/tensor/ops.h"
#include "mesh/crossing.h"
#include "mesh/joint_group.h"
#include "mesh/mesh_body.h"
#include "move/asked_spec.h"
#include "move/cause.h"
#include "move/exchange.h"
#include "move/move_log.h"
#include "move/move_observer.h"
#include "move/redistribute.h"

namespace dtrun::dtensor {
namespace {

using tensors::LocalTensor;

/// Sends this rank's parcels and receives its own.
/// @param local this rank's part of what the messages start from
StartedStage cross(const Crossing& crossing, const LocalTensor& local,
                   collectives::CallOptions options, const base::CallSite& call) {
  const LocalTensor result =
      tensors::empty(crossing.wanted.shape, {.dtype = local.dtype(), .device = local.device()});
  std::vector<LocalTensor> inputs(crossing.ranks, crossing.nothing), outputs = inputs;
  for (const Crossing::Parcel& parcel : crossing.parcels) {
    switch (parcel.way) {
      case Crossing::Way::received:
        outputs[parcel.peer] = shared_part(result, crossing.wanted, parcel.box);
        break;
      case Crossing::Way::sent:
        inputs[parcel.peer] = shared_part(local, crossing.given, parcel.box);
        break;
      case Crossing::Way::kept:
        shared_part(result, crossing.wanted, parcel.box)
            .copy_(shared_part(local, crossing.given, parcel.box));
    }
  }
  if (!crossing.group) return {result};
  options.agreed = crossing.digest;
  return {result, crossing.group->all_to_all(outputs, inputs, options, call)};
}

/// Adds to a disagreement what this rank called.
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

Traffic traffic_across(const CrossMeshPlan& plan, const Spec& from, const Spec& to) {
  const auto item_bytes = static_cast<std::int64_t>(tensors::item_size(from.dtype()));
  Traffic traffic =
      BoxMessages(from.shape(), placed(from.mesh(), plan.given), placed(to.mesh(), plan.wanted))
          .traffic(global_rank_in(from.mesh()));
  traffic.sent *= item_bytes;
  traffic.received *= item_bytes;
  for (const auto& [spec, steps] : {std::pair(&from, &plan.before), std::pair(&to, &plan.after)}) {
    if (spec->is_outside()) continue;
    const DeviceMesh mesh = spec->mesh();
    for (const Traffic& step :
         plan_traffic(from.shape(), mesh.shape(), *steps, mesh.coordinate(), item_bytes))
      traffic += step;
  }
  return traffic;
}

PlanMemory memory_across(const CrossMeshPlan& plan, const Spec& from, const Spec& to) {
  const auto item_bytes = static_cast<std::int64_t>(tensors::item_size(from.dtype()));
  const bool is_on_host = from.mesh().device_type() == tensors::DeviceType::cpu;
  const HostImages images = from.mesh().device_type() == to.mesh().device_type() ? HostImages::none
                            : is_on_host                                         ? HostImages::after
                                         : HostImages::before;
  return crossing_memory(from.shape(), placed(from.mesh(), from.layout()),
                         placed(to.mesh(), to.layout()), plan, images, global_rank_in(from.mesh()),
                         item_bytes);
}

PendingMove start_across(const Spec& from, const Spec& to, const LocalTensor& local,
                         const collectives::CallOptions& options) {
  if (from.is_outside() && to.is_outside()) return {{}, local};
  const std::shared_ptr<const Crossing> crossing = crossing_of(from, to);
  const CrossMeshPlan& plan = crossing->plan;
  if (MoveObserver::any() && !MoveObserver::allow({plan, from, to}))
    return {{}, tensors::zeros(to.local_box().shape, {local.dtype(), to.mesh().device()})};
  log_crossing({plan, from, to});
  PendingMove::Stages stages = stages_of(from, {crossing, &plan.before});
  const bool goes_over_host = from.mesh().device_type() != to.mesh().device_type();
  stages.push_back({true, [crossing, goes_over_host, call = Cause::site_of_call()](
                              const LocalTensor& given, const collectives::CallOptions& stage) {
                      return cross(*crossing, goes_over_host ? given.to(tensors::kCpu) : given,
                                   stage, call);
                    }});
  if (goes_over_host) {
    const auto bring = [to](const LocalTensor& moved, const collectives::CallOptions&) {
      return StartedStage{moved.to(to.mesh().device())};
    };
    stages.push_back({false, bring});
  }
  for (PendingMove::Stage& stage : stages_of(to, {crossing, &plan.after}))
    stages.push_back(std::move(stage));
  const auto tell = [from, to](const base::Error& error) { tell_own_side(from, to, error); };
  return {std::move(stages), local, options, tell};
}

AskedCrossing asked_crossing(std::string_view call, const base::CallSite& site, const Spec& from,
                             const DeviceMesh& mesh, const Placements& placements,
                             const ShardOrder& order) {
  // Never both locks at once: a move back takes them in the other order.
  MeshBody &body = *from.body()->mesh().body(), &target = *mesh.body();
  if (order.empty()) {
    PlanTable::AskedCrossing known;
    {
      const std::lock_guard lock(body.mutex);
      if (const auto* const found = body.plans.asked_crossing(from.body(), mesh.body(), placements))
        known = {
            .target_cleared = found->target_cleared, .to = found->to, .crossing = found->crossing};
    }
    if (known.to != nullptr) {
      const std::lock_guard lock(target.mutex);
      // What is remembered points to a spec of the target, which is there as long as the target's
      // table has not been cleared.
      if (target.plans.cleared() == known.target_cleared)
        return {Spec(known.to->share_locked()), std::move(known.crossing)};
    }
  }
  Spec to = asked_spec(call, site, mesh, placements, from.shape(), from.dtype(), order);
  if (from.is_outside() && to.is_outside()) return {std::move(to), nullptr};
  std::shared_ptr<const Crossing> crossing = crossing_of(from, to);
  if (order.empty()) {
    std::uint64_t cleared = 0;
    {
      const std::lock_guard lock(target.mutex);
      cleared = target.plans.cleared();
    }
    const std::lock_guard lock(body.mutex);
    body.plans.note_asked_crossing(
        {from.body(), mesh.body(), cleared, to.body(), placements, crossing});
  }
  return {std::move(to), std::move(crossing)};
}

LocalTensor redistribute_across(const Spec& from, const AskedCrossing& asked,
                                const LocalTensor& local) {
  const Spec& to = asked.to;
  if (MoveObserver::any() || !asked.crossing || !asked.crossing->is_messages_only)
    return start_across(from, to, local, {}).wait();
  log_crossing({asked.crossing->plan, from, to});
  try {
    return cross(*asked.crossing, local, {}, Cause::site_of_call()).result;
  } catch (const base::Error& error) {
    tell_own_side(from, to, error);
    throw;
  }
}

}  // namespace dtrun::dtensor
