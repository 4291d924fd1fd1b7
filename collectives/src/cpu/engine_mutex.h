// EngineMutex: the lock of a group's engine. What is handed to it while it is held, the callbacks
// behind operations, runs when it has been given back, on that thread, so that a callback may use
// the group. Thread-safe.
#pragma once

#include <functional>
#include <mutex>
#include <utility>
#include <vector>

namespace dtrun::collectives::cpu {

class EngineMutex {
 public:
  void lock() { mutex_.lock(); }
  void unlock() {
    if (later_.empty()) [[likely]]
      return mutex_.unlock();
    const std::vector<std::function<void()>> now = std::exchange(later_, {});
    mutex_.unlock();
    for (const std::function<void()>& call : now) call();
  }

  /// Under the lock. @param call never throws
  void run_later(std::function<void()> call) { later_.push_back(std::move(call)); }

  /// The same lock for a thread that runs none: it holds what a callback could want. Another thread
  /// must take the lock soon.
  class Quiet {
   public:
    explicit Quiet(EngineMutex& whole) : whole_(whole) {}
    void lock() { whole_.mutex_.lock(); }
    void unlock() { whole_.mutex_.unlock(); }

   private:
    EngineMutex& whole_;
  };

 private:
  std::mutex mutex_;
  std::vector<std::function<void()>> later_;
};

}  // namespace dtrun::collectives::cpu
