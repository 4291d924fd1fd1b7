#include "adapter/worker_threads.h"

#include <utility>

#include "quiet_thread.h"

namespace dtrun::collectives::adapter {

void WorkerThreads::run(std::function<void()> job) {
  const std::scoped_lock lock(mutex_);
  if (idle_ <= jobs_.size()) threads_.push_back(start_quiet_thread(name_, [this] { work(); }));
  jobs_.push_back(std::move(job));
  changed_->notify_one();
}

void WorkerThreads::join() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
    changed_->notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void WorkerThreads::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    ++idle_;
    changed_->wait(lock, [this] { return stopping_ || !jobs_.empty(); });
    --idle_;
    if (jobs_.empty()) return;
    const std::function<void()> job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    job();
    lock.lock();
  }
}

}  // namespace dtrun::collectives::adapter
