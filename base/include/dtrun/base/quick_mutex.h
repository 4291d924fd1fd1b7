// QuickMutex: a mutex whose lock and unlock are an atomic exchange each, in line, where no two
// threads meet. A call of std::mutex's takes thirty instructions for each, which is a share of what
// a small collective takes. Who has to wait sleeps on a futex. Not recursive; not fair.
#pragma once

#include <atomic>
#include <cstdint>

namespace dtrun::base {

class QuickMutex {
 public:
  QuickMutex() = default;
  QuickMutex(const QuickMutex&) = delete;
  QuickMutex& operator=(const QuickMutex&) = delete;

  void lock() {
    std::uint32_t free = kFree;
    if (!word_.compare_exchange_strong(free, kHeld, std::memory_order_acquire,
                                       std::memory_order_relaxed)) [[unlikely]]
      wait_and_lock();
  }
  void unlock() {
    if (word_.exchange(kFree, std::memory_order_release) == kAwaited) [[unlikely]]
      wake();
  }

 private:
  static constexpr std::uint32_t kFree = 0, kHeld = 1;
  static constexpr std::uint32_t kAwaited = 2;  ///< held, and somebody may sleep

  void wait_and_lock();
  void wake();

  std::atomic<std::uint32_t> word_{kFree};
};

}  // namespace dtrun::base
