// ProgressThread: moves asynchronous operations on while their owner computes. One per world,
// started with the first such operation. Where it has no CPU of its own it would take that of a
// rank, and the peers would wake it for all that they publish: there it keeps off while the owner
// moves the operations itself, and looks once in a while whether that is still so. Thread-safe.
#pragma once

#include <atomic>
#include <chrono>
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
  /// What its owner's threads do. moves: one has moved it since the last question, or a moment ago.
  /// asleep: one sleeps, and will move it as soon as it is rung. none: they do something else, such
  /// as a callback.
  enum class Attendance { none, moves, asleep };
  virtual Attendance attendance() = 0;
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

  /// Before the first add().
  void keep_off_while_attended() { keeps_off_ = true; }
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
  /// An owner that was asleep is awake, and may move nothing more.
  void end_long_nap() {
    if (is_long_nap_.load(std::memory_order_seq_cst)) notify();
  }

 private:
  /// Between two looks whether owners still attend. Where they sleep it becomes longer from look to
  /// look, and end_long_nap() ends it. So what nobody attends to any more may wait for two short
  /// ones.
  static constexpr std::chrono::milliseconds kNap{1}, kLongestNap{64};

  void run();
  void notify();
  /// The least of all. none, too, where this thread never keeps off.
  Drivable::Attendance attendance();
  void take_nap(std::unique_lock<std::mutex>& lock, std::chrono::milliseconds nap);
  void round(std::unique_lock<std::mutex>& lock);

  Doorbell& doorbell_;
  const Sleep sleep_;
  std::mutex mutex_;
  std::unique_ptr<std::condition_variable> changed_ = std::make_unique<std::condition_variable>();
  std::vector<Drivable*> drivables_;
  bool keeps_off_ = false;
  std::atomic<bool> is_long_nap_{false};
  bool driving_ = false;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace dtrun::collectives::cpu
