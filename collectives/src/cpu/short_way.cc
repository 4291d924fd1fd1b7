// The short way of a group's engine: a blocking collective by posts runs on the caller's stack,
// under the engine's lock, without clock, queue or allocation. If a member is late, the rest of the
// collective becomes an ordinary Operation.
#include "direct_operation.h"
#include "group_engine.h"
#include "pause.h"

namespace dtrun::collectives::cpu {

using base::Deadline;

namespace {
/// Polls this often before it gives up the short way: some tens of microseconds, during which other
/// threads cannot take the lock.
constexpr int kLooks = 128;
}  // namespace

bool GroupEngine::goes_direct(const CollectiveView& collective) {
  return meeting().possible() &&
         DirectShape(collective, spec_.rank, size()).way != DirectWay::rings;
}

bool GroupEngine::run_now(const CollectiveView& collective, Deadline::Duration timeout) {
  if (!meeting().possible()) return false;
  const DirectShape shape(collective, spec_.rank, size());
  if (shape.way != DirectWay::post) return false;
  require_own_process();
  std::shared_ptr<Operation> operation;
  {
    const std::scoped_lock lock(mutex_);
    require_sound(collective.fingerprint, shape.shown_bytes);
    OneShot one_shot;
    std::uint64_t number = 0;
    const bool eventless =
        idle() && announced_.empty() && !channels_.anybody_left() &&
        channels_.table().long_waits.load(std::memory_order_acquire) == long_waits_seen_;
    if (eventless && take_now(shape, one_shot, number)) return true;
    Collective rest{{collective.inputs.begin(), collective.inputs.end()},
                    {collective.outputs.begin(), collective.outputs.end()},
                    {}};
    rest.call.fingerprint = collective.fingerprint;
    rest.call.deadline = Deadline::after(timeout);
    operation =
        std::make_shared<DirectOperation>(shared_from_this(), meeting(), std::move(rest), one_shot);
    operation->record_number = number;
    enqueue(operation);
  }
  wait(*operation, Deadline::never());
  return true;
}

bool GroupEngine::take_now(const DirectShape& shape, OneShot& one_shot, std::uint64_t& number) {
  // With more ranks than cores, polling would take the core from the rank that is waited for.
  const int looks = world_->crowding() == Crowding::crowded ? 1 : kLooks;
  try {
    if (!one_shot.show(shape, meeting())) return false;
    // Bookkeeping is done here because it overlaps with the members' posts.
    note(shape.collective.fingerprint);
    number =
        world_->record().pass(shape.collective.fingerprint, recorded_group_, shape.shown_bytes);
    for (int look = 0; look < looks; ++look) {
      if (one_shot.take(shape, meeting())) return true;
      pause_between_looks(look, world_->crowding());
    }
  } catch (const Disagreement&) {
    // The Operation below finds the disagreement again and reports it.
  } catch (const EarlierDisagreement&) {
  }
  if (number != 0) world_->record().go_on(number);
  return false;
}

}  // namespace dtrun::collectives::cpu
