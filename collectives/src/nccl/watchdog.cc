#include "nccl/watchdog.h"

#include <algorithm>

#include "quiet_thread.h"

namespace dtrun::collectives::nccl {

Watchdog::Watchdog() {
  thread_ = start_quiet_thread("dtrun-nccl", [this] { watch(); });
}

Watchdog::~Watchdog() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Watchdog::add(Watched& watched) {
  const std::scoped_lock lock(mutex_);
  watched_.push_back(&watched);
}

void Watchdog::remove(Watched& watched) {
  std::unique_lock lock(mutex_);
  std::erase(watched_, &watched);
  changed_.wait(lock, [&] { return under_inspection_ != &watched; });
}

void Watchdog::call() {
  {
    const std::scoped_lock lock(mutex_);
    called_ = true;
  }
  changed_.notify_all();
}

void Watchdog::watch() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    called_ = false;
    Watched::TimePoint next = Watched::TimePoint::max();
    // By value: groups come and go while the lock is not held.
    for (Watched* const watched : std::vector<Watched*>(watched_)) {
      if (std::find(watched_.begin(), watched_.end(), watched) == watched_.end()) continue;
      under_inspection_ = watched;
      lock.unlock();
      next = std::min(next, watched->inspect());
      lock.lock();
      under_inspection_ = nullptr;
      changed_.notify_all();
    }
    const auto wanted = [this] { return called_ || stopping_; };
    if (next == Watched::TimePoint::max()) {
      changed_.wait(lock, wanted);
    } else if (next > std::chrono::steady_clock::now()) {
      changed_.wait_until(lock, next, wanted);
    } else {
      lock.unlock();
      std::this_thread::yield();
      lock.lock();
    }
  }
}

}  // namespace dtrun::collectives::nccl
