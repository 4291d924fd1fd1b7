#include "nccl/operation.h"

#include <utility>

#include "nccl/nccl_group.h"

namespace dtrun::collectives::nccl {

Operation::Operation(std::shared_ptr<NcclGroup> group, const std::shared_ptr<DeviceApi>& device,
                     Launch given, Call given_call)
    : launch(std::move(given)),
      call(std::move(given_call)),
      begin(device),
      end(device),
      group_(std::move(group)) {}

void Operation::wait(base::Deadline deadline) {
  group_->wait(*this, deadline);
}

bool Operation::is_completed() {
  return group_->is_completed(*this);
}

std::exception_ptr Operation::exception() {
  return group_->exception(*this);
}

void Operation::begin_on_device() {
  group_->world().activity.begin(launch.queue.device, this, fingerprint());
}

void Operation::release() {
  group_->world().activity.end(this);
  launch.issue = nullptr;
  launch.after = nullptr;
  call.finish = nullptr;
  call.keep_alive.reset();
}

void Operation::end_record(RankRecord::Outcome outcome) {
  if (record_number == 0) return;
  group_->world().record->end(std::exchange(record_number, 0), outcome);
  call.timer.end(outcome == RankRecord::Outcome::done ? CallTimer::Outcome::done
                                                      : CallTimer::Outcome::failed);
}

}  // namespace dtrun::collectives::nccl
