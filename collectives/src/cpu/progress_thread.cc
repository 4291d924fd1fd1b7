#include "progress_thread.h"

#include <algorithm>

#include "quiet_thread.h"

namespace dtrun::collectives::cpu {

ProgressThread::~ProgressThread() {
  if (!thread_.joinable()) return;
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
    changed_->notify_all();
  }
  doorbell_.ring();
  thread_.join();
}

void ProgressThread::add(Drivable& drivable) {
  const std::scoped_lock lock(mutex_);
  // A nap goes on: who adds moves it.
  if (drivables_.empty()) changed_->notify_all();
  if (std::find(drivables_.begin(), drivables_.end(), &drivable) == drivables_.end())
    drivables_.push_back(&drivable);
  if (!thread_.joinable()) thread_ = start_quiet_thread("dtrun-progress", [this] { run(); });
  doorbell_.ring();
}

void ProgressThread::remove(Drivable& drivable) {
  std::unique_lock lock(mutex_);
  std::erase(drivables_, &drivable);
  changed_->wait(lock, [this] { return !driving_; });
}

void ProgressThread::run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    changed_->wait(lock, [this] { return stopping_ || !drivables_.empty(); });
    if (can_keep_off()) {
      if (!stopping_ && !drivables_.empty()) changed_->wait_for(lock, kNap);
      continue;
    }
    // Always counted as asleep: it does not spin, so peers must ring for all that they publish.
    const Sleeper sleeper(doorbell_);
    do {
      round(lock);
    } while (!stopping_ && !drivables_.empty() && !can_keep_off());
  }
}

bool ProgressThread::can_keep_off() {
  if (!keeps_off_) return false;
  bool are_attended = true;
  for (Drivable* drivable : drivables_) are_attended &= drivable->is_attended();
  return are_attended;
}

void ProgressThread::round(std::unique_lock<std::mutex>& lock) {
  const std::uint32_t ticket = doorbell_.take_ticket();
  const std::vector<Drivable*> now = drivables_;
  std::vector<Drivable*> idle;
  bool moved = false;
  base::Deadline next = base::Deadline::never();
  driving_ = true;
  lock.unlock();
  for (Drivable* drivable : now) {
    const Drivable::Outcome outcome = drivable->drive();
    if (outcome == Drivable::Outcome::idle) {
      idle.push_back(drivable);
    } else {
      moved |= outcome == Drivable::Outcome::moved;
      next = next.earlier(drivable->next_look());
    }
  }
  lock.lock();
  driving_ = false;
  changed_->notify_all();
  // add() rings: with an old ticket an idle one may have got work since it was driven.
  if (moved || stopping_ || doorbell_.ticket() != ticket) return;
  std::erase_if(drivables_, [&](Drivable* drivable) {
    return std::find(idle.begin(), idle.end(), drivable) != idle.end();
  });
  if (drivables_.empty()) return;
  lock.unlock();
  sleep_(ticket, next);
  lock.lock();
}

}  // namespace dtrun::collectives::cpu
