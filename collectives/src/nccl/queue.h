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

#include "nccl/meeting.h"
#include "nccl/operation.h"

namespace dtrun::collectives::nccl {

class Queue {
 public:
  enum class Phase { meeting, starting, ready, closed };

  /// Its communicator is made by a meeting. On the device, which is the current one.
  Queue(std::shared_ptr<NcclApi> nccl, std::shared_ptr<DeviceApi> device, int device_index,
        MeetingPlace place);
  /// Its communicator comes from a split, which NCCL may still be at.
  Queue(std::shared_ptr<NcclApi> nccl, std::shared_ptr<DeviceApi> device, int device_index,
        std::unique_ptr<Communicator> slot);
  ~Queue();
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  Phase phase() const { return phase_; }
  int device() const { return device_index_; }
  void push(std::shared_ptr<Operation> operation);
  /// @throws Error where NCCL, CUDA or the meeting says so
  void advance();
  /// @throws Error that a running operation has met
  void check_running();
  bool has_work() const { return !waiting_.empty() || !running_.empty(); }
  /// All that were pushed are enqueued, and the communicator can be split or closed.
  bool is_settled() const { return phase_ == Phase::ready && waiting_.empty(); }
  /// The oldest that is not done; null: none.
  const Operation* oldest() const;
  template <typename Visit>
  void for_each(Visit visit) const {
    for (const auto& operation : running_) visit(*operation);
    for (const auto& operation : waiting_) visit(*operation);
  }
  /// Global ranks that have not come to make the communicator.
  std::vector<int> missing() const;

  /// NCCL is still at something on this communicator. @param action for the message
  bool is_busy(std::string_view action);
  Communicator communicator() const { return communicator_; }
  /// Closes the queue: no call on its communicator from now on. @return what to abort or destroy;
  /// null: nothing
  Communicator take();
  /// The group has failed, and with it all that is not done.
  void conclude_all(const std::exception_ptr& error);
  /// What runs the callbacks behind the operations that are over, since it was asked last.
  std::vector<std::function<void()>> take_callbacks() { return std::exchange(callbacks_, {}); }
  /// Gives back what the operations held. Only once the device does not work on them any more.
  void drop_operations();

 private:
  void meet();
  void start();
  /// @return whether all is issued and enqueued
  bool issue(Operation& operation);
  void retire();
  void conclude(Operation& operation, const std::exception_ptr& error);

  const std::shared_ptr<NcclApi> nccl_;
  const std::shared_ptr<DeviceApi> device_;
  const int device_index_;
  const DeviceStream stream_;
  std::optional<Meeting> meeting_;
  int rank_ = 0;
  int size_ = 0;
  Phase phase_;
  std::chrono::steady_clock::time_point next_question_{};
  std::unique_ptr<Communicator> slot_;  ///< where NCCL writes; see NcclApi::init_rank
  Communicator communicator_ = nullptr;
  std::deque<std::shared_ptr<Operation>> waiting_;  ///< not enqueued yet
  std::deque<std::shared_ptr<Operation>> running_;  ///< enqueued, not done
  std::vector<std::function<void()>> callbacks_;    ///< of what is over
};

}  // namespace dtrun::collectives::nccl
