#include "nccl/queue.h"

#include <utility>

#include "nccl/nccl_types.h"

namespace dtrun::collectives::nccl {

namespace {

/// Between two questions to the store. Making a communicator takes NCCL longer than this.
constexpr auto kQuestionInterval = std::chrono::milliseconds(2);

}  // namespace

Queue::Queue(std::shared_ptr<NcclApi> nccl, std::shared_ptr<DeviceApi> device, int device_index,
             MeetingPlace place)
    : nccl_(std::move(nccl)),
      device_(std::move(device)),
      device_index_(device_index),
      stream_(device_->make_stream()),
      rank_(place.rank),
      size_(static_cast<int>(place.global_ranks.size())),
      phase_(Phase::meeting),
      slot_(std::make_unique<Communicator>(nullptr)) {
  meeting_.emplace(*nccl_, std::move(place));
}

Queue::Queue(std::shared_ptr<NcclApi> nccl, std::shared_ptr<DeviceApi> device, int device_index,
             std::unique_ptr<Communicator> slot)
    : nccl_(std::move(nccl)),
      device_(std::move(device)),
      device_index_(device_index),
      stream_(device_->make_stream()),
      phase_(Phase::starting),
      slot_(std::move(slot)),
      communicator_(*slot_) {}

Queue::~Queue() {
  device_->destroy_stream(stream_);
}

void Queue::push(std::shared_ptr<Operation> operation) {
  waiting_.push_back(std::move(operation));
}

void Queue::advance() {
  if (phase_ == Phase::closed) return;
  // Also for questions: on a thread of ours, the runtime would begin to use device 0 for them.
  const CurrentDevice current(*device_, device_index_);
  if (phase_ == Phase::meeting) meet();
  if (phase_ == Phase::starting) start();
  if (phase_ != Phase::ready) return;
  while (!waiting_.empty() && issue(*waiting_.front())) {
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
  retire();
}

void Queue::meet() {
  const auto now = std::chrono::steady_clock::now();
  if (now < next_question_) return;
  next_question_ = now + kQuestionInterval;
  const std::optional<UniqueId> id = meeting_->ask();
  if (!id) return;
  phase_ = Phase::starting;
  const Result result = nccl_->init_rank(slot_.get(), size_, *id, rank_);
  communicator_ = *slot_;
  check(*nccl_, result, "make a communicator", communicator_);
}

void Queue::start() {
  if (!is_busy("make a communicator")) phase_ = Phase::ready;
}

bool Queue::is_busy(std::string_view action) {
  Result state = Result::success;
  check(*nccl_, nccl_->async_error(communicator_, state), action, communicator_);
  return check(*nccl_, state, action, communicator_) == Result::in_progress;
}

bool Queue::issue(Operation& operation) {
  const char* const name = op_kind_name(operation.fingerprint().kind);
  if (operation.progress == Operation::Progress::waiting) {
    // At a split that another thread has asked for.
    if (is_busy(name)) return false;
    device_->make_wait(stream_, operation.begin.get());
    operation.progress = Operation::Progress::issued;
    check(*nccl_, operation.launch.issue(communicator_, stream_), name, communicator_);
  }
  // An event recorded before NCCL has enqueued its kernels would pass without them.
  if (is_busy(name)) return false;
  if (operation.launch.after) operation.launch.after(stream_);
  // It stays until the device has done it: it holds what it copies to.
  if (operation.call.finish) device_->run_on(device_index_, stream_, operation.call.finish);
  device_->record(operation.end.get(), stream_);
  operation.progress = Operation::Progress::enqueued;
  return true;
}

void Queue::retire() {
  while (!running_.empty() && device_->has_passed(running_.front()->end.get())) {
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

void Queue::conclude_all(const std::exception_ptr& error) {
  for (const auto& operation : running_) conclude(*operation, error);
  for (const auto& operation : waiting_) conclude(*operation, error);
}

void Queue::check_running() {
  if (phase_ != Phase::ready || !has_work()) return;
  const CurrentDevice current(*device_, device_index_);
  is_busy("go on");
}

const Operation* Queue::oldest() const {
  if (!running_.empty()) return running_.front().get();
  return waiting_.empty() ? nullptr : waiting_.front().get();
}

std::vector<int> Queue::missing() const {
  return phase_ == Phase::meeting ? meeting_->missing() : std::vector<int>();
}

Communicator Queue::take() {
  phase_ = Phase::closed;
  return std::exchange(communicator_, nullptr);
}

void Queue::drop_operations() {
  for (const auto& operation : running_) operation->release();
  for (const auto& operation : waiting_) operation->release();
  running_.clear();
  waiting_.clear();
}

}  // namespace dtrun::collectives::nccl
