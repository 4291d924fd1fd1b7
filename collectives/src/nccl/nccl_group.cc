#include "nccl/nccl_group.h"

#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "dtrun/base/log.h"
#include "group_failure_texts.h"
#include "nccl/nccl_types.h"

namespace dtrun::collectives::nccl {

using base::Deadline;
using base::Error;
using base::ErrorCode;
using Progress = Operation::Progress;

namespace {

/// How often a waiting thread looks before it sleeps between looks, and how long it then sleeps.
constexpr int kQuickLooks = 200;
constexpr auto kLookInterval = std::chrono::microseconds(200);

}  // namespace

NcclGroup::NcclGroup(std::shared_ptr<NcclWorld> world, NcclGroupSpec spec)
    : world_(std::move(world)),
      spec_(std::move(spec)),
      recorded_group_(spec_.name, spec_.rank, spec_.global_ranks),
      board_(world_->store, spec_.key, spec_.rank, spec_.global_ranks) {
  world_->watchdog.add(*this);
}

NcclGroup::~NcclGroup() {
  shutdown();
  if (!fork_mark_.in_child()) return;
  // Streams, events, communicators and the watchdog's thread are the parent's.
  new std::shared_ptr<NcclWorld>(world_);
  new std::map<QueueKey, std::unique_ptr<Queue>>(std::move(queues_));
}

/// Before any lock, which a thread may have held that the child does not have.
void NcclGroup::require_own_process() const {
  if (fork_mark_.in_child()) throw forked_child_error(spec_.name, "GPU and connections");
}

int NcclGroup::default_device() {
  {
    const std::scoped_lock lock(mutex_);
    if (first_device_ >= 0) return first_device_;
  }
  // With one GPU made visible to each rank, its number is 0 whatever the rank's slot.
  if (world_->local_rank < world_->device->device_count()) return world_->local_rank;
  return world_->device->current_device();
}

Queue& NcclGroup::queue(const QueueKey& key) {
  if (const auto found = queues_.find(key); found != queues_.end()) return *found->second;
  MeetingPlace place;
  place.store = world_->store;
  place.gpu_name = fmt::format("cuda:{} of {}", key.device, world_->host);
  if (!world_->gpus_are_shared)
    place.gpu = world_->machine + " " + world_->device->bus_id(key.device);
  // Its device is no part of the key: each rank has its own number for the GPU that it brings. A
  // second device of a rank is a second communicator of all.
  const auto of_the_same = [&](const auto& entry) {
    return entry.first.from == key.from && entry.first.to == key.to;
  };
  const auto number = std::count_if(queues_.begin(), queues_.end(), of_the_same);
  if (key.from < 0) {
    place.key = fmt::format("{}/lane/{}", spec_.key, number);
    place.rank = spec_.rank;
    place.global_ranks = spec_.global_ranks;
    if (first_device_ < 0) first_device_ = key.device;
  } else {
    place.key = fmt::format("{}/lane/{}-{}/{}", spec_.key, key.from, key.to, number);
    place.rank = key.from == spec_.rank ? 0 : 1;
    for (const int rank : {key.from, key.to})
      place.global_ranks.push_back(spec_.global_ranks[static_cast<std::size_t>(rank)]);
  }
  const CurrentDevice current(*world_->device, key.device);
  // Made before it has a place: fail() closes all that have one.
  return *(queues_[key] =
               std::make_unique<Queue>(world_->nccl, world_->device, key.device, std::move(place)));
}

void NcclGroup::add_split_queue(int device, std::unique_ptr<Communicator> slot) {
  const std::scoped_lock lock(mutex_);
  const CurrentDevice current(*world_->device, device);
  queues_[{device}] =
      std::make_unique<Queue>(world_->nccl, world_->device, device, std::move(slot));
  first_device_ = device;
}

int NcclGroup::own_rank() const {
  return spec_.global_ranks[static_cast<std::size_t>(spec_.rank)];
}

void NcclGroup::throw_if_failed() const {
  if (failure_) std::rethrow_exception(failure_);
}

Work NcclGroup::run(Launch launch, Call call) {
  require_own_process();
  const bool async = call.async;
  const OpKind kind = call.fingerprint.kind;
  if (world_->compare_calls && kind != OpKind::send && kind != OpKind::receive) compare(call);
  std::shared_ptr<Operation> operation;
  {
    const std::scoped_lock lock(mutex_);
    throw_if_failed();
    try {
      operation = enqueue(std::move(launch), std::move(call));
    } catch (const Error& error) {
      fail(error, Tell::members);
      throw_if_failed();
    }
  }
  if (async) return Work(operation);
  operation->wait(Deadline::never());
  return Work();
}

std::shared_ptr<Operation> NcclGroup::enqueue(Launch launch, Call call) {
  const QueueKey key = launch.queue;
  const CurrentDevice current(*world_->device, key.device);
  last_ = call.fingerprint;
  last_call_ = std::chrono::steady_clock::now();
  auto operation = std::make_shared<Operation>(shared_from_this(), world_->device,
                                               std::move(launch), std::move(call));
  // What the caller's stream does after this is no business of the operation's.
  world_->device->record(operation->begin.get(), world_->device->current_stream(key.device));
  Queue& target = queue(key);
  operation->record_number =
      world_->record->begin(operation->fingerprint(), recorded_group_, operation->launch.bytes);
  target.push(operation);
  target.advance();
  if (std::exchange(watchdog_sleeps_, false)) world_->watchdog.call();
  return operation;
}

void NcclGroup::wait(Operation& operation, Deadline deadline) {
  require_own_process();
  Lock lock(mutex_);
  // A stream is not made to wait for what the host has waited for: threads that share a stream and
  // use two groups in another order than their peers would wait for each other there.
  if (operation.launch.host_wait == HostWait::yes || world_->host_wait == HostWait::yes ||
      !deadline.is_never())
    return await(lock, operation, Progress::done, deadline);
  await(lock, operation, Progress::enqueued, deadline);
  const int device = operation.launch.queue.device;
  const CurrentDevice current(*world_->device, device);
  world_->device->make_wait(world_->device->current_stream(device), operation.end.get());
}

void NcclGroup::await(Lock& lock, Operation& operation, Progress progress, Deadline deadline) {
  for (int looks = 0;;) {
    if (!failure_ && operation.progress < progress) advance_all();
    // What was done before the group failed is done.
    if (operation.progress == Progress::done) return;
    throw_if_failed();
    if (operation.progress >= progress) return;
    if (operation.call.deadline.expired()) {
      fail(timed_out(operation), Tell::members);
      throw_if_failed();
    }
    if (deadline.expired())
      throw Error(ErrorCode::kTimeout, operation.fingerprint().describe() + " is not done yet",
                  "the wait had a deadline of its own; the operation goes on");
    pause(lock, looks, deadline.earlier(operation.call.deadline));
  }
}

void NcclGroup::pause(Lock& lock, int& looks, Deadline deadline) {
  if (++looks < kQuickLooks) {
    lock.unlock();
    std::this_thread::yield();
    lock.lock();
    return;
  }
  // NCCL and CUDA ring no bell that a thread with a deadline could sleep on.
  changed_.wait_until(lock,
                      std::min(deadline.when(), std::chrono::steady_clock::now() + kLookInterval));
}

void NcclGroup::advance_all() {
  try {
    for (const auto& [key, queue] : queues_) queue->advance();
  } catch (const Error& error) {
    fail(error, Tell::members);
  }
}

bool NcclGroup::is_completed(Operation& operation) {
  require_own_process();
  const std::scoped_lock lock(mutex_);
  if (!failure_) advance_all();
  return operation.progress == Progress::done || failure_ != nullptr;
}

std::exception_ptr NcclGroup::exception(Operation& operation) {
  const std::scoped_lock lock(mutex_);
  return operation.progress == Progress::done ? nullptr : failure_;
}

void NcclGroup::fail(const Error& error, Tell tell) {
  if (failure_) return;
  failure_ = std::make_exception_ptr(error);
  for (const auto& [key, queue] : queues_) {
    if (const Communicator communicator = queue->take()) doomed_.push_back(communicator);
    queue->conclude_all(failure_);
  }
  // Sync calls return before the device is done: whoever reads results now reads garbage.
  base::log::error(base::log::Component::kCollectives,
                   "group '{}' failed; results of its unfinished calls are not to be used:\n{}",
                   spec_.name, error.what());
  if (tell != Tell::nobody && size() > 1) {
    try {
      board_.publish_failure(error, tell == Tell::members ? StatusBoard::Wording::of_a_peer
                                                          : StatusBoard::Wording::as_it_stands);
    } catch (const Error&) {  // without the store they meet their own deadline
    }
  }
  changed_.notify_all();
  world_->watchdog.call();
}

Error NcclGroup::timed_out(const Operation& operation) {
  std::string where;
  std::string for_whom;
  try {
    const auto queue = queues_.find(operation.launch.queue);
    const std::vector<int> missing =
        queue == queues_.end() ? std::vector<int>() : queue->second->missing();
    if (!missing.empty()) for_whom = rank_list(missing);
    where = board_.describe_others(operation.fingerprint());
    if (queue != queues_.end() && queue->second->phase() == Queue::Phase::starting)
      where = "NCCL has not made its communicator; " + where;
  } catch (const Error& error) {
    where = "nothing is known of the others: " + error.summary();
  }
  const auto waited = std::chrono::steady_clock::now() - operation.started();
  return Error(ErrorCode::kTimeout,
               waited_text(own_rank(), waited, operation.fingerprint(), spec_.name, for_whom),
               where,
               "raise the timeout if they only need longer; look at the other ranks' output");
}

void NcclGroup::reject(const Fingerprint& fingerprint, const Error& error) {
  // A child's mistakes are not its parent's.
  if (size() == 1 || fork_mark_.in_child()) return;
  const std::scoped_lock lock(mutex_);
  fail(Error(error.code(),
             fmt::format("{} was rejected: {}", fingerprint.describe(), error.summary()),
             error.why(), error.remedy()),
       Tell::members);
}

void NcclGroup::abort(const Error& error) {
  require_own_process();
  const std::scoped_lock lock(mutex_);
  fail(error, Tell::members_alike);
}

}  // namespace dtrun::collectives::nccl
