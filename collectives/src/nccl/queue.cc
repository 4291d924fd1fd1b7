#include "nccl/queue.h"

#include <fmt/core.h>

#include <exception>
#include <utility>

#include "nccl/nccl_types.h"

namespace dtrun::collectives::nccl {

Queue::Queue(QueueSite site, Seat seat)
    : site_(std::move(site)),
      stream_(site_.device->make_stream()),
      seat_(std::move(seat)),
      phase_(Phase::meeting),
      slot_(std::make_unique<Communicator>(nullptr)) {}

Queue::Queue(QueueSite site, std::unique_ptr<Communicator> slot)
    : site_(std::move(site)),
      stream_(site_.device->make_stream()),
      phase_(Phase::starting),
      slot_(std::move(slot)),
      communicator_(*slot_) {}

Queue::~Queue() {
  site_.device->destroy_stream(stream_);
}

void Queue::push(std::shared_ptr<Operation> operation) {
  waiting_.push_back(std::move(operation));
}

bool Queue::advance() {
  if (phase_ == Phase::closed) return false;
  // Also for questions: on a thread of ours, the runtime would begin to use device 0 for them.
  const CurrentDevice current(*site_.device, site_.device_index);
  if (phase_ == Phase::meeting) meet();
  if (phase_ == Phase::starting) start();
  if (phase_ != Phase::ready || (partner_ != nullptr && partner_->phase_ < Phase::ready))
    return false;
  bool moved = false;
  // One by one: operations in one group of calls become one kernel, which must be the same on all
  // ranks, and how many wait here is an accident of this rank's.
  while (!waiting_.empty() && issue(*waiting_.front())) {
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
    moved = true;
  }
  retire();
  return moved;
}

void Queue::meet() {
  const std::optional<Meeting::Ids> ids = seat_.meeting->outcome();
  if (!ids || !may_begin()) return;
  phase_ = Phase::starting;
  const Result result =
      site_.nccl->init_rank(slot_.get(), seat_.size, (*ids)[seat_.id], seat_.rank);
  communicator_ = *slot_;
  seat_.meeting = nullptr;
  check(*site_.nccl, result, "make a communicator", communicator_);
}

/// What NCCL allocates for a communicator may wait for all kernels of the device. They mostly end
/// within moments; one that waits for a peer may need what this rank does next, so not for ever.
bool Queue::may_begin() {
  if (!site_.activity->oldest(site_.device_index)) return true;
  const auto now = std::chrono::steady_clock::now();
  if (!could_begin_) could_begin_ = now;
  return now - *could_begin_ >= site_.quiet_patience;
}

void Queue::start() {
  if (!is_busy("make a communicator")) phase_ = Phase::ready;
}

bool Queue::is_busy(std::string_view action) {
  Result state = Result::success;
  check(*site_.nccl, site_.nccl->async_error(communicator_, state), action, communicator_);
  return check(*site_.nccl, state, action, communicator_) == Result::in_progress;
}

bool Queue::issue(Operation& operation) {
  const char* const name = op_kind_name(operation.fingerprint().kind);
  if (operation.progress == Operation::Progress::waiting) {
    // At a split that another thread has asked for.
    if (is_busy(name)) return false;
    site_.device->make_wait(stream_, operation.begin.get());
    operation.progress = Operation::Progress::issued;
    operation.begin_on_device();
    check(*site_.nccl, operation.launch.issue(communicator_, stream_), name, communicator_);
  }
  // An event recorded before NCCL has enqueued its kernels would pass without them.
  if (is_busy(name)) return false;
  run_behind(operation);
  site_.device->record(operation.end.get(), stream_);
  operation.progress = Operation::Progress::enqueued;
  return true;
}

// What it throws fails the group as an Error. Any other exception would leave the operation as it
// is, and the next look would run this again.
void Queue::run_behind(Operation& operation) {
  const auto stuck = [&](std::string_view why) {
    return base::Error(base::ErrorCode::kSystem,
                       fmt::format("what belongs behind {} could not be done: {}",
                                   operation.fingerprint().describe(), why),
                       "results are copied to strided tensors there, and observers are told",
                       "look at what the message names");
  };
  try {
    if (operation.launch.after) operation.launch.after(stream_);
    // It stays until the device has done it: it holds what it copies to.
    if (operation.call.finish)
      site_.device->run_on(site_.device_index, stream_, operation.call.finish);
  } catch (const base::Error&) {
    throw;
  } catch (const std::exception& error) {
    throw stuck(error.what());
  } catch (...) {
    throw stuck("an exception without a text");
  }
}

void Queue::retire() {
  while (!running_.empty() && site_.device->has_passed(running_.front()->end.get())) {
    conclude(*running_.front(), nullptr);
    running_.front()->progress = Operation::Progress::done;
    running_.front()->release();
    running_.pop_front();
  }
}

void Queue::conclude(Operation& operation, const std::exception_ptr& error) {
  operation.end_record(error ? RankRecord::Outcome::failed : RankRecord::Outcome::done);
  if (std::function<void()> callbacks = operation.conclude(error))
    callbacks_.push_back(std::move(callbacks));
}

std::vector<std::shared_ptr<Operation>> Queue::conclude_all(const std::exception_ptr& error) {
  std::vector<std::shared_ptr<Operation>> all;
  for (std::deque<std::shared_ptr<Operation>>* const operations : {&running_, &waiting_}) {
    for (std::shared_ptr<Operation>& operation : *operations) {
      conclude(*operation, error);
      all.push_back(std::move(operation));
    }
    operations->clear();
  }
  return all;
}

void Queue::check_running() {
  if (phase_ != Phase::ready || !has_work()) return;
  const CurrentDevice current(*site_.device, site_.device_index);
  is_busy("go on");
}

const Operation* Queue::oldest() const {
  if (!running_.empty()) return running_.front().get();
  return waiting_.empty() ? nullptr : waiting_.front().get();
}

std::string Queue::obstacle() const {
  if (phase_ == Phase::ready && partner_ != nullptr && partner_->phase_ < Phase::ready)
    return partner_->obstacle();
  const bool waits_for_quiet = phase_ == Phase::meeting && could_begin_;
  if (!waits_for_quiet && phase_ != Phase::starting) return "";
  const std::optional<Fingerprint> running = site_.activity->oldest(site_.device_index);
  if (!running) return "NCCL has not made its communicator";
  return "NCCL has not made its communicator: " + running->describe() +
         " still runs on its device, and may be what that waits for";
}

Communicator Queue::take() {
  phase_ = Phase::closed;
  if (seat_.meeting) seat_.meeting->cancel();
  return std::exchange(communicator_, nullptr);
}

}  // namespace dtrun::collectives::nccl
