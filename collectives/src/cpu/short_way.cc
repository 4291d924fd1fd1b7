// The short way of a group's engine: a blocking collective by posts runs on the caller's stack,
// under the engine's lock, without clock, queue or allocation. If a member is late, the rest of the
// collective becomes an ordinary Operation.
#include "dtrun/base/log.h"
#include "group_engine.h"
#include "pause.h"
#include "shared_operation.h"
#include "short_call.h"

namespace dtrun::collectives::cpu {

using base::Deadline;

Situation GroupEngine::situation_of(const CollectiveView& collective) {
  return collectives::situation_of(collective, place_, world_->crowding());
}

void GroupEngine::log_way(const CollectiveView& collective, const Situation& situation,
                          Way way) const {
  base::log::debug(base::log::Component::kCollectives, "group '{}': {} goes {}", spec_.name,
                   collective.fingerprint.describe(), explain(situation, way));
}

bool GroupEngine::run_now(const CollectiveView& collective, Deadline::Duration timeout) {
  if (!meeting().possible()) return false;
  const Situation situation = situation_of(collective);
  const Algorithm algorithm = choose_algorithm(situation);
  if (algorithm.way != Way::post) return false;
  const SharedPlan plan(collective, spec_.rank, situation, algorithm.way);
  require_own_process();
  if (says_ways_) log_way(collective, situation, algorithm.way);
  std::shared_ptr<Operation> operation;
  {
    const std::scoped_lock lock(mutex_);
    require_sound(collective.fingerprint, plan.shown_bytes());
    SharedSteps steps;
    std::uint64_t number = 0;
    const bool eventless =
        idle() && announced_.empty() && !channels_.anybody_left() &&
        channels_.table().long_waits.load(std::memory_order_acquire) == long_waits_seen_;
    if (eventless && take_now(plan, steps, algorithm.looks, number)) return true;
    if (collective.short_call != nullptr) collective.short_call->wait();
    Collective rest{{collective.inputs.begin(), collective.inputs.end()},
                    {collective.outputs.begin(), collective.outputs.end()},
                    {}};
    rest.call.fingerprint = collective.fingerprint;
    rest.call.deadline = Deadline::after(timeout);
    operation = std::make_shared<SharedOperation>(shared_from_this(), meeting(), std::move(rest),
                                                  situation, algorithm.way, steps);
    operation->record_number = number;
    enqueue(operation);
  }
  wait(*operation, Deadline::never());
  return true;
}

bool GroupEngine::take_now(const SharedPlan& plan, SharedSteps& steps, int looks,
                           std::uint64_t& number) {
  RankRecord& record = world_->record();
  // Before the peers see this rank come: in a trace nobody ends before all have begun.
  const std::int64_t begun_ns = record.is_exact() ? monotonic_ns() : 0;
  ShortCall* const call = plan.collective().short_call;
  try {
    if (!steps.show(plan, meeting())) return false;
    // Bookkeeping is done here because it overlaps with the members' posts.
    note(plan.collective().fingerprint);
    if (call != nullptr) call->count(plan.collective().bytes());
    number =
        record.pass(plan.collective().fingerprint, recorded_group_, plan.shown_bytes(), begun_ns);
    for (int look = 0; look < looks; ++look) {
      if (steps.take(plan, meeting())) {
        if (record.is_exact()) record.passed(number);
        return true;
      }
      if (call != nullptr && yields_between_looks(look, world_->crowding())) call->wait();
      pause_between_looks(look, world_->crowding());
    }
  } catch (const Disagreement&) {
    // The Operation below finds the disagreement again and reports it.
  } catch (const EarlierDisagreement&) {
  }
  if (number != 0) record.go_on(number);
  return false;
}

}  // namespace dtrun::collectives::cpu
