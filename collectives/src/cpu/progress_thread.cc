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
  // A short nap goes on: who adds moves it.
  if (drivables_.empty() || is_long_nap_.load(std::memory_order_seq_cst)) changed_->notify_all();
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
  using Attendance = Drivable::Attendance;
  std::unique_lock lock(mutex_);
  Nap nap{0};
  while (!stopping_) {
    // Whoever comes next is to get its first look soon, too.
    if (drivables_.empty()) nap = Nap(0);
    changed_->wait(lock, [this] { return stopping_ || !drivables_.empty(); });
    const Attendance now = attendance();
    if (now != Attendance::none) {
      const Nap longest = now == Attendance::asleep ? kLongestNap : kNap;
      nap = std::clamp(2 * nap, first_nap_, longest);
      take_nap(lock, nap);
      // What is idle is forgotten: its owner's blocking calls need no looks.
      if (has_own_cpu()) drive_all(lock, Then::nap);
      continue;
    }
    nap = Nap(0);
    // Always counted as asleep: it does not spin, so peers must ring for all that they publish.
    const Sleeper sleeper(doorbell_);
    while (!stopping_ && !drivables_.empty()) {
      round(lock);
      if (attendance() != Attendance::none) break;
    }
  }
}

Drivable::Attendance ProgressThread::attendance() {
  Drivable::Attendance least = Drivable::Attendance::asleep;
  for (Drivable* drivable : drivables_) least = std::min(least, drivable->attendance());
  return least;
}

void ProgressThread::take_nap(std::unique_lock<std::mutex>& lock, Nap nap) {
  if (stopping_ || drivables_.empty()) return;
  if (nap > kNap) {
    is_long_nap_.store(true, std::memory_order_seq_cst);
    // Whoever has woken up since the last question may not have seen that.
    if (attendance() != Drivable::Attendance::asleep) nap = kNap;
  }
  changed_->wait_for(lock, nap);
  is_long_nap_.store(false, std::memory_order_seq_cst);
}

void ProgressThread::notify() {
  const std::scoped_lock lock(mutex_);
  changed_->notify_all();
}

void ProgressThread::round(std::unique_lock<std::mutex>& lock) {
  const std::uint32_t ticket = doorbell_.take_ticket();
  const std::optional<base::Deadline> next = drive_all(lock, Then::wait);
  if (!next || drivables_.empty()) return;
  lock.unlock();
  sleep_(ticket, *next);
  lock.lock();
}

std::optional<base::Deadline> ProgressThread::drive_all(std::unique_lock<std::mutex>& lock,
                                                        Then then) {
  const std::uint32_t ticket = doorbell_.ticket();
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
      if (then == Then::wait) next = next.earlier(drivable->next_look());
    }
  }
  lock.lock();
  driving_ = false;
  changed_->notify_all();
  // add() rings: with an old ticket an idle one may have got work since it was driven.
  if (moved || stopping_ || doorbell_.ticket() != ticket) return std::nullopt;
  std::erase_if(drivables_, [&](Drivable* drivable) {
    return std::find(idle.begin(), idle.end(), drivable) != idle.end();
  });
  return next;
}

}  // namespace dtrun::collectives::cpu
