// Queue: a communicator with its stream, and the operations that go through it in their order:
// those that wait for the communicator to be made or for NCCL to take them, and those that the
// device has not done yet. A state machine: advance() does what can be done now and never blocks.
// Guarded by its group's mutex.
#pragma once

#include <chrono>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "nccl/device_activity.h"
#include "nccl/meeting.h"
#include "nccl/operation.h"

namespace dtrun::collectives::nccl {

/// Where a queue is, and what it works with.
struct QueueSite {
  std::shared_ptr<NcclApi> nccl;
  std::shared_ptr<DeviceApi> device;
  int device_index = 0;
  /// Of all that share the device. Outlives the queue.
  const DeviceActivity* activity = nullptr;
  /// How long a communicator that could be made waits for the device to be quiet.
  std::chrono::milliseconds quiet_patience{};
};

/// A rank's part in a communicator that a meeting makes.
struct Seat {
  std::shared_ptr<Meeting> meeting;
  std::size_t id = 0;  ///< which of the meeting's
  int rank = 0;        ///< in the communicator
  int size = 0;
};

class Queue {
 public:
  enum class Phase { meeting, starting, ready, closed };

  /// Its communicator is made by a meeting. On the device, which is the current one.
  Queue(QueueSite site, Seat seat);
  /// Its communicator comes from a split, which NCCL may still be at.
  Queue(QueueSite site, std::unique_ptr<Communicator> slot);
  ~Queue();
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  Phase phase() const { return phase_; }
  int device() const { return site_.device_index; }
  /// The other direction of a pair of ranks: neither gives the device anything before both
  /// communicators are made.
  void set_partner(const Queue* partner) { partner_ = partner; }
  void push(std::shared_ptr<Operation> operation);
  /// @return whether an operation has come to the device
  /// @throws Error where NCCL, CUDA or the meeting says so
  bool advance();
  /// @throws Error that a running operation has met
  void check_running();
  bool has_work() const { return !waiting_.empty() || !running_.empty(); }
  /// NCCL has not taken all that it could.
  bool has_unissued() const { return phase_ != Phase::meeting && !waiting_.empty(); }
  /// The device has done all, and the communicator can be split or closed.
  bool is_idle() const { return phase_ == Phase::ready && !has_work(); }
  /// The oldest that is not done; null: none.
  const Operation* oldest() const;
  template <typename Visit>
  void for_each(Visit visit) const {
    for (const auto& operation : running_) visit(*operation);
    for (const auto& operation : waiting_) visit(*operation);
  }
  /// Null once its communicator has been begun.
  const std::shared_ptr<Meeting>& meeting() const { return seat_.meeting; }
  /// What keeps its communicator from being made, for messages; empty: nothing that is known here.
  std::string obstacle() const;

  /// NCCL is still at something on this communicator. @param action for the message
  bool is_busy(std::string_view action);
  Communicator communicator() const { return communicator_; }
  /// Closes the queue: no call on its communicator from now on. @return what to abort or destroy;
  /// null: nothing
  Communicator take();
  /// Where NCCL may write until the communicator is gone.
  std::unique_ptr<Communicator> take_slot() { return std::move(slot_); }
  /// The group has failed, and with it all that is not done, which is given away: it may go once
  /// the device does not work on it any more.
  std::vector<std::shared_ptr<Operation>> conclude_all(const std::exception_ptr& error);
  /// What runs the callbacks behind the operations that are over, since it was asked last.
  std::vector<std::function<void()>> take_callbacks() { return std::exchange(callbacks_, {}); }

 private:
  void meet();
  void start();
  bool may_begin();
  /// @return whether all is issued and enqueued
  bool issue(Operation& operation);
  /// @throws Error, whatever it throws
  void run_behind(Operation& operation);
  void retire();
  void conclude(Operation& operation, const std::exception_ptr& error);

  const QueueSite site_;
  const DeviceStream stream_;
  Seat seat_;
  const Queue* partner_ = nullptr;
  Phase phase_;
  std::optional<std::chrono::steady_clock::time_point> could_begin_;
  std::unique_ptr<Communicator> slot_;  ///< where NCCL writes; see NcclApi::init_rank
  Communicator communicator_ = nullptr;
  std::deque<std::shared_ptr<Operation>> waiting_;  ///< not enqueued yet
  std::deque<std::shared_ptr<Operation>> running_;  ///< enqueued, not done
  std::vector<std::function<void()>> callbacks_;    ///< of what is over
};

}  // namespace dtrun::collectives::nccl
