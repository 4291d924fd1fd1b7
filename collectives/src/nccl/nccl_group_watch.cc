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
  if (failure_) bury_doomed(lock);
  changed_.notify_all();
  run_callbacks(lock);
  if (failure_) return TimePoint::max();
  watchdog_sleeps_ = oldest() == nullptr;
  if (!watchdog_sleeps_) return now + kWatchInterval;
  const bool will_tell = last_.sequence != 0 && !published_idleness();
  return will_tell ? last_call_ + kIdleness : TimePoint::max();
}

void NcclGroup::look_around(TimePoint now) {
  for (const auto& [key, queue] : queues_) {
    queue->advance();
    queue->check_running();
  }
  const Operation* const waiting = oldest();
  if (waiting == nullptr) return tell_of_idleness(now);
  if (const std::optional<Error> failure = job_failure()) return fail(*failure, Tell::nobody);
  if (now - waiting->started() > kPatience) hear_peers(*waiting, now);
  std::optional<Error> late;
  for (const auto& [key, queue] : queues_)
    queue->for_each([&](const Operation& operation) {
      if (!late && operation.call.deadline.expired()) late = timed_out(operation);
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

void NcclGroup::hear_peers(const Operation& waiting, TimePoint now) {
  if (now < next_hearing_) return;
  next_hearing_ = now + kHearingInterval;
  const Fingerprint& mine = waiting.fingerprint();
  if (!published_ || published_->progress != Status::Progress::waits ||
      published_->fingerprint.sequence != mine.sequence ||
      published_->fingerprint.kind != mine.kind) {
    published_ = Status{Status::Progress::waits, mine};
    board_.publish(*published_);
  }
  if (const std::optional<Error> failure = board_.read_failure(spec_.name))
    return fail(*failure, Tell::nobody);
  // Who differs from anyone differs from the first rank, or that one does; the rest is told.
  if (spec_.rank == 0 || is_message(mine.kind)) return;
  const std::optional<Status> theirs = board_.read(0);
  if (!theirs || theirs->progress != Status::Progress::waits ||
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
  board_.publish(*published_);
}

void NcclGroup::bury_doomed(Lock& lock) {
  const std::vector<Communicator> doomed = std::exchange(doomed_, {});
  lock.unlock();
  // Whoever fails next has no communicator to put here, and nobody calls NCCL on these.
  for (const Communicator communicator : doomed) {
    const Result result = world_->nccl->abort(communicator);
    if (result != Result::success && result != Result::in_progress)
      base::log::warning(base::log::Component::kCollectives,
                         "group '{}': a communicator could not be aborted: {}", spec_.name,
                         world_->nccl->error_text(result));
  }
  lock.lock();
  for (const auto& [key, queue] : queues_) queue->drop_operations();
  changed_.notify_all();
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
    bury_doomed(lock);
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
  }
  lock.unlock();
  const Deadline deadline =
      Deadline::after(std::min<Deadline::Duration>(spec_.timeout, kLeaveGrace));
  for (Closing& one : closing)
    if (one.is_ready) {
      const Result result = world_->nccl->finalize(one.communicator);
      one.is_ready = result == Result::success || result == Result::in_progress;
    }
  for (const Closing& one : closing) {
    if (one.is_ready && finalize(one.communicator, deadline))
      world_->nccl->destroy(one.communicator);
    else
      world_->nccl->abort(one.communicator);
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
