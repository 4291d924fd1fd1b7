// ProgressThread: moves asynchronous operations on while their owner computes. One per world,
// started with the first such operation. Thread-safe.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "doorbell.h"
#include "dtrun/base/deadline.h"

namespace dtrun::collectives::cpu {

/// Something that can be moved on.
class Drivable {
 public:
  virtual ~Drivable() = default;
  enum class Outcome { moved, waiting, idle };
  /// Never blocks, never throws. idle: nothing is in flight.
  virtual Outcome drive() = 0;
  /// Asked before each sleep. By when drive() must be called again although nobody rang; what moves
  /// from now on rings.
  virtual base::Deadline next_look() = 0;
};

class ProgressThread {
 public:
  /// Sleeps until the doorbell's ticket is old or the deadline.
  using Sleep = std::function<void(std::uint32_t ticket, base::Deadline until)>;

  /// @param doorbell outlives the thread
  ProgressThread(Doorbell& doorbell, Sleep sleep_until_rung)
      : doorbell_(doorbell), sleep_(std::move(sleep_until_rung)) {}
  ~ProgressThread();
  ProgressThread(const ProgressThread&) = delete;
  ProgressThread& operator=(const ProgressThread&) = delete;

  /// Drives it until it is idle.
  void add(Drivable& drivable);
  /// In a child after fork: the thread is the parent's.
  void forget() {
    if (thread_.joinable()) thread_.detach();
    // Its copy counts the parent's thread as a waiter, for whom its destructor would wait.
    (void)changed_.release();
  }
  /// When this returns, the thread neither drives it nor will.
  void remove(Drivable& drivable);

 private:
  void run();
  void round(std::unique_lock<std::mutex>& lock);

  Doorbell& doorbell_;
  const Sleep sleep_;
  std::mutex mutex_;
  std::unique_ptr<std::condition_variable> changed_ = std::make_unique<std::condition_variable>();
  std::vector<Drivable*> drivables_;
  bool driving_ = false;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace dtrun::collectives::cpu
