// Operation: one call on its way to the device. It waits for its queue's communicator, is issued to
// NCCL, counts as enqueued once NCCL has put it on the queue's stream and its end is marked by an
// event, and is done once the event has passed. Guarded by its group's mutex; what Work does goes
// through the group.
#pragma once

#include <chrono>
#include <compare>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "device_api.h"
#include "dtrun/collectives/backend.h"
#include "nccl/nccl_api.h"
#include "rank_record.h"

namespace dtrun::collectives::nccl {

class NcclGroup;

/// Which communicator an operation runs on. Messages have one per pair of ranks and direction: a
/// queue is a queue, and what goes the other way must not stand behind it. Those of a batch have
/// the group's.
struct QueueKey {
  int device = 0;
  int from = -1;  ///< group rank of the sender; -1: the queue of the whole group
  int to = -1;
  auto operator<=>(const QueueKey&) const = default;
};

/// Whether wait() lets the calling thread go on while the device still works.
enum class HostWait { no, yes };

struct Launch {
  QueueKey queue;
  /// NCCL's calls, all in one group, and copies before them. Runs once, on the queue's device.
  std::function<Result(Communicator, DeviceStream)> issue;
  /// Copies after them. May be empty.
  std::function<void(DeviceStream)> after;
  HostWait host_wait = HostWait::no;
  std::uint64_t bytes = 0;  ///< of this rank's buffers
};

class Operation : public Work::State {
 public:
  enum class Progress { waiting, issued, enqueued, done };

  /// On the device of the launch.
  Operation(std::shared_ptr<NcclGroup> group, const std::shared_ptr<DeviceApi>& device,
            Launch launch, Call call);

  void wait(base::Deadline deadline) override;
  bool is_completed() override;
  std::exception_ptr exception() override;
  /// NCCL receives from a rank that the call names.
  int source_rank() override {
    return call.fingerprint.kind == OpKind::receive ? call.fingerprint.root : -1;
  }

  const Fingerprint& fingerprint() const { return call.fingerprint; }
  /// It is over, which is_completed() must not have said yet. @return as Work::State::settle
  [[nodiscard]] std::function<void()> conclude(std::exception_ptr error) {
    return settle(std::move(error), call.keep_alive);
  }
  /// NCCL gets it now: the device is busy with it until it is released.
  void begin_on_device();
  /// Gives back what the operation held for the device's sake.
  void release();
  /// It is over, as far as this rank's record and counters go. The first outcome counts.
  void end_record(RankRecord::Outcome outcome);

  Launch launch;
  Call call;
  std::uint64_t record_number = 0;  ///< 0: the record knows no more of it
  Progress progress = Progress::waiting;
  Event begin;  ///< the caller's stream has come to the call
  Event end;

 private:
  const std::shared_ptr<NcclGroup> group_;
};

}  // namespace dtrun::collectives::nccl
