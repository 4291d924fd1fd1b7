// ProgressThread: moves asynchronous operations on while their owner computes. One per world,
// started with the first such operation. While the owner moves the operations itself it keeps off,
// and looks once in a while whether that is still so: else the two would wait for each other's
// lock, and the peers would wake it for all that they publish. Thread-safe.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
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

  /// Before the first add(): it has no CPU of its own, so each of its looks takes one from a rank.
  void look_seldom() { first_nap_ = kNap; }
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
  using Nap = std::chrono::microseconds;
  /// Between two looks whether owners still attend: at first short where there is a CPU for it, as
  /// most owners that begin something compute next. It becomes longer from look to look, up to kNap
  /// or, where they sleep, kLongestNap, which end_long_nap() ends. So what nobody attends to any
  /// more may wait for two of kNap.
  static constexpr Nap kShortNap{200}, kNap{1000}, kLongestNap{64000};

  void run();
  void notify();
  /// The least of all.
  Drivable::Attendance attendance();
  void take_nap(std::unique_lock<std::mutex>& lock, Nap nap);
  void round(std::unique_lock<std::mutex>& lock);
  enum class Then { wait, nap };
  /// Once, and forgets those that are idle. @param then nap: until an owner is asked again, so no
  /// peer need ring @return until when to sleep; nullopt: there may be more
  std::optional<base::Deadline> drive_all(std::unique_lock<std::mutex>& lock, Then then);
  bool has_own_cpu() const { return first_nap_ < kNap; }

  Doorbell& doorbell_;
  const Sleep sleep_;
  std::mutex mutex_;
  std::unique_ptr<std::condition_variable> changed_ = std::make_unique<std::condition_variable>();
  std::vector<Drivable*> drivables_;
  Nap first_nap_ = kShortNap;
  std::atomic<bool> is_long_nap_{false};
  bool driving_ = false;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace dtrun::collectives::cpu
