#include "move/cross_mesh.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "dtrun/base/error.h"
#include "dtrun/collectives/agreed_exchange.h"
#include "dtrun/tensor/ops.h"
#include "mesh/crossing.h"
#include "mesh/joint_group.h"
#include "mesh/mesh_body.h"
#include "move/asked_spec.h"
#include "move/cause.h"
#include "move/exchange.h"
#include "move/kept_crossing.h"
#include "move/move_log.h"
#include "move/move_observer.h"
#include "move/redistribute.h"

namespace dtrun::dtensor {
namespace {

using tensors::LocalTensor;

/// What goes to others, and what comes from them.
struct Moved {
  std::span<const LocalTensor> sent, received;
};

[[gnu::always_inline]] inline collectives::Work exchange(const Crossing& crossing,
                                                         tensors::Device device, const Moved& parts,
                                                         const collectives::CallOptions& options,
                                                         const base::CallSite& call) {
  if (!crossing.group) return {};
  return crossing.group->all_to_all_agreed({.plan = crossing.digest,
                                            .dtype = crossing.dtype,
                                            .device = device,
                                            .outputs = {crossing.received.peers, parts.received},
                                            .inputs = {crossing.sent.peers, parts.sent}},
                                           options, call);
}

/// As cross(), of a crossing that is_plain.
[[gnu::always_inline]] inline collectives::Work cross_plainly(
    const Crossing& crossing, const LocalTensor& local, const LocalTensor& result,
    const collectives::CallOptions& options, const base::CallSite& call) {
  const Moved whole{{&local, crossing.sent.peers.size()},
                    {&result, crossing.received.peers.size()}};
  return exchange(crossing, local.device(), whole, options, call);
}

/// Sends this rank's parcels and receives its own.
/// @param local this rank's part of what the messages start from
/// @param result of this rank's part of where they lead
/// @param patterns of the parts, where they are known
collectives::Work cross(const Crossing& crossing, const LocalTensor& local,
                        const LocalTensor& result, const collectives::CallOptions& options,
                        const base::CallSite& call, const PartPatterns* patterns = nullptr) {
  if (crossing.is_plain) return cross_plainly(crossing, local, result, options, call);
  CrossedParts parts = patterns != nullptr && patterns->are_of(local)
                           ? patterns->over(local, result)
                           : CrossedParts(crossing, local, result);
  for (const CrossedParts::Kept& part : parts.kept) part.into.copy_(part.from);
  // An exchange would copy them, too, but only of runs of elements it goes a short way.
  if (!options.async)
    for (LocalTensor& part : parts.sent) part = part.contiguous();
  return exchange(crossing, local.device(), {parts.sent, parts.received}, options, call);
}

LocalTensor empty_result(const Crossing& crossing, const LocalTensor& local) {
  return tensors::empty(crossing.wanted.shape, {.dtype = local.dtype(), .device = local.device()});
}

bool communicates(const std::vector<Step>& steps) {
  return std::ranges::any_of(steps, [](const Step& step) { return is_collective(step.kind); });
}

/// Stands for collectives of other ranks, so that what comes after them begins where theirs does,
/// at the wait, and not at the start: two moves that are under way together would else send
/// their messages in another order on this rank.
PendingMove::Stage without_part() {
  return {true, [](const LocalTensor& local, const collectives::CallOptions&) {
            return StartedStage{local};
          }};
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
  if (from.is_outside() && communicates(plan.before)) stages.push_back(without_part());
  const bool goes_over_host = from.mesh().device_type() != to.mesh().device_type();
  stages.push_back({true, [crossing, goes_over_host, call = Cause::site_of_call()](
                              const LocalTensor& given, const collectives::CallOptions& stage) {
                      const LocalTensor sent = goes_over_host ? given.to(tensors::kCpu) : given;
                      LocalTensor result = empty_result(*crossing, sent);
                      collectives::Work work = cross(*crossing, sent, result, stage, call);
                      return StartedStage{std::move(result), std::move(work)};
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
  const Crossing* const crossing = asked.crossing.get();
  if (MoveObserver::any() || crossing == nullptr || !crossing->is_messages_only)
    return start_across(from, asked.to, local, {}).wait();
  log_crossing({crossing->plan, from, asked.to});
  try {
    LocalTensor result = empty_result(*crossing, local);
    cross(*crossing, local, result, {}, Cause::site_of_call());
    return result;
  } catch (const base::Error& error) {
    tell_own_side(from, asked.to, error);
    throw;
  }
}

LocalTensor redistribute_again(const Spec& from, const KeptCrossing& kept,
                               const LocalTensor& local) {
  if (MoveObserver::any()) return start_across(from, kept.to(), local, {}).wait();
  log_crossing({kept.crossing().plan, from, kept.to()});
  try {
    LocalTensor result = kept.pattern().over(
        tensors::Storage::allocate(kept.pattern().storage()->bytes(), local.device()));
    const base::CallSite call = Cause::site_of_call();
    if (kept.parts()) {
      cross(kept.crossing(), local, result, {}, call, &*kept.parts());
    } else {
      cross_plainly(kept.crossing(), local, result, {}, call);
    }
    return result;
  } catch (const base::Error& error) {
    tell_own_side(from, kept.to(), error);
    throw;
  }
}

}  // namespace dtrun::dtensor
