// Watchdog: the thread that looks after the groups of one rank while nobody waits for them: NCCL
// has no deadlines and no word for a peer's death. It sleeps until the earliest time that a group
// has asked for, or until it is called. Thread-safe.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace dtrun::collectives::nccl {

class Watched {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  virtual ~Watched() = default;
  /// On the watchdog's thread. Never throws. @return when to look again at the latest
  virtual TimePoint inspect() = 0;
};

class Watchdog {
 public:
  Watchdog();
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  void add(Watched& watched);
  /// When this returns, it is not looked at any more. Never from inspect().
  void remove(Watched& watched);
  /// Look at all soon: something has begun, or failed.
  void call();

 private:
  void watch();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Watched*> watched_;
  const Watched* under_inspection_ = nullptr;
  bool called_ = false;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace dtrun::collectives::nccl
