// What the watchdog does for a group, and how a group is left.
#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "disagreement.h"
#include "dtrun/base/log.h"
#include "group_failure_texts.h"
#include "nccl/nccl_group.h"
#include "nccl/nccl_types.h"

namespace dtrun::collectives::nccl {

using base::Deadline;
using base::Error;
using base::ErrorCode;

namespace {

/// Between two looks at a group that works.
constexpr auto kWatchInterval = std::chrono::milliseconds(10);
/// The same while NCCL has not taken all calls: each is given to it once it is through with the one
/// before, and nobody else may be looking.
constexpr auto kFeedInterval = std::chrono::milliseconds(1);
/// How long after a call that it has taken there is no interval at all.
constexpr auto kQuickFeeding = std::chrono::milliseconds(2);
/// A call that takes longer may be stuck: the others are told of it, and listened to.
constexpr auto kPatience = std::chrono::milliseconds(500);
constexpr auto kHearingInterval = std::chrono::milliseconds(500);
/// Who has called nothing for so long says so, once.
constexpr auto kIdleness = std::chrono::seconds(1);
/// How long a rank that leaves waits for the others to leave as well, before it frees what they
/// could, in theory, still be reading.
constexpr auto kLeaveGrace = std::chrono::seconds(10);

}  // namespace

std::optional<Error> NcclGroup::job_failure() const {
  const std::optional<GroupFailure> failure = collectives::job_failure(world_->job_page.get());
  return failure ? std::optional(failure->error) : std::nullopt;
}

Watched::TimePoint NcclGroup::inspect() {
  Lock lock(mutex_);
  const TimePoint now = std::chrono::steady_clock::now();
  if (!failure_) {
    try {
      look_around(now);
    } catch (const Error& error) {
      fail(error, Tell::members);
    } catch (const std::exception& error) {
      fail(Error(ErrorCode::kSystem, fmt::format("the nccl watchdog failed: {}", error.what())),
           Tell::members);
    }
  }
  if (failure_) watch_ending(now);
  changed_.notify_all();
  run_callbacks(lock);
  if (failure_) return ending_ && !ending_is_slow_ ? now + kWatchInterval : TimePoint::max();
  watchdog_sleeps_ = oldest() == nullptr;
  if (!watchdog_sleeps_) return next_look(now);
  const bool will_tell = last_.sequence != 0 && !published_idleness();
  return will_tell ? last_call_ + kIdleness : TimePoint::max();
}

void NcclGroup::look_around(TimePoint now) {
  for (const auto& [key, queue] : queues_) {
    if (queue->advance()) ++moved_;
    queue->check_running();
  }
  const Operation* const waiting = oldest();
  if (waiting == nullptr) return tell_of_idleness(now);
  if (const std::optional<Error> failure = job_failure()) return fail(*failure, Tell::nobody);
  if (now - waiting->started() > kPatience) hear_peers(*waiting, now);
  std::optional<Error> late;
  for (const auto& [key, queue] : queues_)
    queue->for_each([&](const Operation& operation) {
      if (!late && operation.call.deadline.expired()) late = lateness(waiting_of(operation));
    });
  if (late) fail(*late, Tell::members);
}

const Operation* NcclGroup::oldest() const {
  const Operation* result = nullptr;
  for (const auto& [key, queue] : queues_) {
    const Operation* const candidate = queue->oldest();
    if (candidate != nullptr && (result == nullptr || candidate->started() < result->started()))
      result = candidate;
  }
  return result;
}

Watched::TimePoint NcclGroup::next_look(TimePoint now) {
  if (std::exchange(moved_before_, moved_) != moved_) quick_until_ = now + kQuickFeeding;
  const bool is_fed = std::any_of(queues_.begin(), queues_.end(),
                                  [](const auto& entry) { return entry.second->has_unissued(); });
  if (!is_fed) return now + kWatchInterval;
  return now < quick_until_ ? now : now + kFeedInterval;
}

struct NcclGroup::Hearing {
  std::mutex mutex;
  bool is_over = false;
  std::optional<Error> failure;          ///< that a peer has told
  std::optional<Error> failure_of_ours;  ///< to hear
  std::optional<Status> first_rank;
};

void NcclGroup::hear_peers(const Operation& waiting, TimePoint now) {
  const Fingerprint& mine = waiting.fingerprint();
  if (hearing_) {
    const std::shared_ptr<Hearing> hearing = hearing_;
    const std::scoped_lock lock(hearing->mutex);
    if (!hearing->is_over) return;
    hearing_ = nullptr;
    return heed(*hearing, mine);
  }
  if (now < next_hearing_) return;
  next_hearing_ = now + kHearingInterval;
  bool publishes = false;
  if (!published_ || published_->progress != Status::Progress::waits ||
      published_->fingerprint.sequence != mine.sequence ||
      published_->fingerprint.kind != mine.kind) {
    published_ = Status{Status::Progress::waits, mine};
    publishes = true;
  }
  hearing_ = std::make_shared<Hearing>();
  const bool asks_first = spec_.rank != 0 && !is_message(mine.kind);
  world_->herald.post([hearing = hearing_, board = board_, status = *published_, publishes,
                       asks_first, name = spec_.name]() -> std::optional<Herald::Duration> {
    std::optional<Error> failure, failure_of_ours;
    std::optional<Status> first_rank;
    try {
      if (publishes) board->publish(status);
      failure = board->read_failure(name);
      if (asks_first) first_rank = board->read(0);
    } catch (const Error& error) {
      failure_of_ours = error;
    }
    const std::scoped_lock lock(hearing->mutex);
    hearing->failure = std::move(failure);
    hearing->failure_of_ours = std::move(failure_of_ours);
    hearing->first_rank = first_rank;
    hearing->is_over = true;
    return std::nullopt;
  });
}

void NcclGroup::heed(const Hearing& hearing, const Fingerprint& mine) {
  if (hearing.failure_of_ours) return fail(*hearing.failure_of_ours, Tell::members);
  if (hearing.failure) return fail(*hearing.failure, Tell::nobody);
  // Who differs from anyone differs from the first rank, or that one does; the rest is told.
  const std::optional<Status>& theirs = hearing.first_rank;
  if (!theirs || theirs->progress != Status::Progress::waits || is_message(mine.kind) ||
      is_message(theirs->fingerprint.kind) || theirs->fingerprint.sequence != mine.sequence ||
      theirs->fingerprint.agrees_with(mine))
    return;
  fail(disagreement_error(spec_.name, {spec_.global_ranks.front(), theirs->fingerprint},
                          {own_rank(), mine}),
       Tell::members);
}

bool NcclGroup::published_idleness() const {
  return published_ && published_->progress == Status::Progress::done &&
         published_->fingerprint.sequence == last_.sequence &&
         published_->fingerprint.kind == last_.kind;
}

void NcclGroup::tell_of_idleness(TimePoint now) {
  if (last_.sequence == 0 || now - last_call_ < kIdleness || published_idleness()) return;
  published_ = Status{Status::Progress::done, last_};
  world_->herald.post([board = board_, status = *published_]() -> std::optional<Herald::Duration> {
    try {
      board->publish(status);
    } catch (const Error&) {  // it is for messages only
    }
    return std::nullopt;
  });
}

void NcclGroup::watch_ending(TimePoint now) {
  if (!ending_) return;
  if (ending_->is_over()) {
    ending_ = nullptr;
  } else if (!ending_is_slow_ && now - ending_->begun() >= world_->abort_patience) {
    ending_is_slow_ = true;
    base::log::warning(
        base::log::Component::kCollectives,
        "group '{}': NCCL has not ended {} communicator{} for {}: a kernel of the device hangs, or "
        "NCCL does; what its calls worked on is kept",
        spec_.name, ending_->communicators(), ending_->communicators() == 1 ? "" : "s",
        base::format_duration(world_->abort_patience));
  }
}

void NcclGroup::await_ending(const std::shared_ptr<Ending>& ending) {
  if (!ending || ending->await(Deadline::at(ending->begun() + world_->abort_patience))) return;
  Lock lock(mutex_);
  if (!ending_) ending_ = ending;
  watch_ending(Deadline::Clock::now());
}

void NcclGroup::run_callbacks(Lock& lock) {
  // Until there are none: the watchdog may sleep after this, and nobody else would run them.
  for (;;) {
    std::vector<std::function<void()>> callbacks;
    for (const auto& [key, queue] : queues_)
      for (std::function<void()>& callback : queue->take_callbacks())
        callbacks.push_back(std::move(callback));
    if (callbacks.empty()) return;
    lock.unlock();
    for (const std::function<void()>& callback : callbacks) callback();
    callbacks.clear();
    lock.lock();
  }
}

void NcclGroup::shutdown() {
  if (fork_mark_.in_child()) return;
  Lock lock(mutex_);
  if (std::exchange(left_, true)) return;
  const bool drained = drain(lock);
  lock.unlock();
  world_->watchdog.remove(*this);
  lock.lock();
  if (!failure_ && !drained)
    fail(Error(ErrorCode::kAborted, "this rank has left its nccl group in the middle of a call"),
         Tell::members);
  if (failure_) {
    const std::shared_ptr<Ending> ending = ending_;
    lock.unlock();
    await_ending(ending);
    lock.lock();
  } else {
    failure_ =
        std::make_exception_ptr(Error(ErrorCode::kAborted, "this rank has left its nccl group"));
    close_queues(lock);
  }
  run_callbacks(lock);
}

bool NcclGroup::drain(Lock& lock) {
  const Deadline deadline = Deadline::after(spec_.timeout);
  for (int looks = 0;; pause(lock, looks, deadline)) {
    if (!failure_) advance_all();
    if (failure_ || oldest() == nullptr) return true;
    bool only_receives = true;
    for (const auto& [key, queue] : queues_)
      queue->for_each([&](const Operation& operation) {
        if (operation.fingerprint().kind != OpKind::receive) only_receives = false;
      });
    if (only_receives || deadline.expired()) return false;
  }
}

void NcclGroup::close_queues(Lock& lock) {
  struct Closing {
    Communicator communicator;
    bool is_ready;
  };
  std::vector<Closing> closing;
  for (const auto& [key, queue] : queues_) {
    const bool is_ready = queue->phase() == Queue::Phase::ready;
    if (const Communicator communicator = queue->take())
      closing.push_back({communicator, is_ready});
    lost_slots_.push_back(queue->take_slot());
  }
  std::vector<std::unique_ptr<Communicator>> slots = std::exchange(lost_slots_, {});
  lock.unlock();
  const Deadline deadline =
      Deadline::after(std::min<Deadline::Duration>(spec_.timeout, kLeaveGrace));
  for (Closing& one : closing)
    if (one.is_ready) {
      const Result result = world_->nccl->finalize(one.communicator);
      one.is_ready = result == Result::success || result == Result::in_progress;
    }
  Ending::Plan plan;
  for (const Closing& one : closing) {
    const bool is_through = one.is_ready && finalize(one.communicator, deadline);
    (is_through ? plan.to_destroy : plan.to_abort).push_back(one.communicator);
  }
  if (!closing.empty()) {
    plan.nccl = world_->nccl;
    plan.device = world_->device;
    plan.device_index = queues_.begin()->first.device;
    plan.group = spec_.name;
    plan.slots = std::move(slots);
    await_ending(Ending::begin(std::move(plan)));
  }
  lock.lock();
}

bool NcclGroup::finalize(Communicator communicator, Deadline deadline) {
  Lock lock(mutex_);
  for (int looks = 0;; pause(lock, looks, deadline)) {
    Result state = Result::success;
    const Result result = world_->nccl->async_error(communicator, state);
    if (result != Result::success) return false;
    if (state == Result::success) return true;
    if (state != Result::in_progress || job_failure()) return false;
    if (!deadline.expired()) continue;
    base::log::warning(base::log::Component::kCollectives,
                       "group '{}': this rank leaves, and the others have not for {}", spec_.name,
                       base::format_duration(kLeaveGrace));
    return false;
  }
}

}  // namespace dtrun::collectives::nccl
