// WorkerThreads: as many threads as there are jobs at once; a thread that has done its job waits
// for the next. Owned by one backend. Thread-safe.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace dtrun::collectives::adapter {

class WorkerThreads {
 public:
  /// @param name of each thread, at most 15 characters
  explicit WorkerThreads(std::string name) : name_(std::move(name)) {}
  ~WorkerThreads() {
    if (changed_) join();
  }
  WorkerThreads(const WorkerThreads&) = delete;
  WorkerThreads& operator=(const WorkerThreads&) = delete;

  /// Starts at once: a job may wait for what another one does. @throws Error kSystem
  void run(std::function<void()> job);
  /// Waits for all jobs. There must be no new ones.
  void join();
  /// In a child after fork: the threads are the parent's.
  void forget() {
    for (std::thread& thread : threads_) thread.detach();
    threads_.clear();
    // Its copy counts the parent's threads as waiters, for whom its destructor would wait.
    (void)changed_.release();
  }

 private:
  void work();

  const std::string name_;
  std::mutex mutex_;
  std::unique_ptr<std::condition_variable> changed_ = std::make_unique<std::condition_variable>();
  std::deque<std::function<void()>> jobs_;
  std::size_t idle_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace dtrun::collectives::adapter
