// Attendance: whether threads that wait for operations drive an engine themselves meanwhile, so
// that the progress thread need not wake up for it. Thread-safe.
#pragma once

#include <atomic>

namespace dtrun::collectives::cpu {

class Attendance {
 public:
  /// Its owner drives the engine while it lives.
  class Stay {
   public:
    explicit Stay(Attendance& attendance) : attendance_(attendance) {
      attendance_.present_.fetch_add(1, std::memory_order_relaxed);
      attendance_.was_there_.store(true, std::memory_order_relaxed);
    }
    ~Stay() { attendance_.present_.fetch_sub(1, std::memory_order_relaxed); }
    Stay(const Stay&) = delete;
    Stay& operator=(const Stay&) = delete;

   private:
    Attendance& attendance_;
  };
  /// Somebody has come since this was asked last, or is there. Who waits for one operation after
  /// the other is there all the time, so to say.
  bool goes_on() {
    const bool was_there = was_there_.exchange(false, std::memory_order_relaxed);
    return was_there || present_.load(std::memory_order_relaxed) > 0;
  }
  /// Whether the caller, who drives the engine now, will come again soon.
  void expect(bool comes_again) { was_there_.store(comes_again, std::memory_order_relaxed); }

 private:
  std::atomic<int> present_{0};
  std::atomic<bool> was_there_{false};
};

}  // namespace dtrun::collectives::cpu
