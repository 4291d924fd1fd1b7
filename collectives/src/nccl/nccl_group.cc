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
/// Between two questions to the store. Making a communicator takes NCCL longer than this.
constexpr auto kQuestionInterval = std::chrono::milliseconds(2);
/// How long a call that fails waits until the store knows, for the others.
constexpr auto kTellingGrace = std::chrono::seconds(1);
/// How long a call that is late waits for word of the others.
constexpr auto kInquiryGrace = std::chrono::seconds(1);

}  // namespace

NcclGroup::NcclGroup(std::shared_ptr<NcclWorld> world, NcclGroupSpec spec)
    : world_(std::move(world)),
      spec_(std::move(spec)),
      recorded_group_(spec_.name, spec_.rank, spec_.global_ranks),
      board_(
          std::make_shared<StatusBoard>(world_->store, spec_.key, spec_.rank, spec_.global_ranks)) {
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
  const CurrentDevice current(*world_->device, key.device);
  return key.from < 0 ? make_group_queue(key) : make_pair_queues(key);
}

QueueSite NcclGroup::queue_site(int device) {
  return {world_->nccl, world_->device, device, &world_->activity, world_->quiet_patience};
}

MeetingPlace NcclGroup::meeting_place(int device) const {
  MeetingPlace place;
  place.store = world_->store;
  place.gpu_name = fmt::format("cuda:{} of {}", device, world_->host);
  if (!world_->gpus_are_shared) place.gpu = world_->machine + " " + world_->device->bus_id(device);
  return place;
}

std::shared_ptr<Meeting> NcclGroup::meet(MeetingPlace place, int device) {
  auto meeting = std::make_shared<Meeting>(world_->nccl, std::move(place));
  world_->herald.post([meeting, api = world_->device, device]() -> std::optional<Herald::Duration> {
    try {
      // NCCL asks CUDA for an id's sake; on a new thread that would begin to use device 0.
      const CurrentDevice current(*api, device);
      if (meeting->ask()) return std::nullopt;
    } catch (const Error&) {  // of the device, which the queue's own calls meet as well
    }
    return kQuestionInterval;
  });
  return meeting;
}

// In both cases the device is no part of the key: each rank has its own number for the GPU that it
// brings. A second device of a rank is a second communicator of all.

Queue& NcclGroup::make_group_queue(const QueueKey& key) {
  const auto number = std::count_if(queues_.begin(), queues_.end(),
                                    [](const auto& entry) { return entry.first.from < 0; });
  MeetingPlace place = meeting_place(key.device);
  place.key = fmt::format("{}/lane/{}", spec_.key, number);
  place.rank = spec_.rank;
  place.global_ranks = spec_.global_ranks;
  // Made before it has a place: fail() closes all that have one.
  auto made = std::make_unique<Queue>(
      queue_site(key.device), Seat{meet(std::move(place), key.device), 0, spec_.rank, size()});
  if (first_device_ < 0) first_device_ = key.device;
  return *(queues_[key] = std::move(made));
}

Queue& NcclGroup::make_pair_queues(const QueueKey& key) {
  const auto number = std::count_if(queues_.begin(), queues_.end(), [&](const auto& entry) {
    return entry.first.from == key.from && entry.first.to == key.to;
  });
  // No structured binding: clang 14, which builds the fuzzers, lets no lambda capture one.
  const int low = std::min(key.from, key.to), high = std::max(key.from, key.to);
  MeetingPlace place = meeting_place(key.device);
  place.key = fmt::format("{}/lane/{}-{}/{}", spec_.key, low, high, number);
  place.rank = spec_.rank == low ? 0 : 1;
  place.ids = 2;
  for (const int rank : {low, high})
    place.global_ranks.push_back(spec_.global_ranks[static_cast<std::size_t>(rank)]);
  const std::shared_ptr<Meeting> meeting = meet(std::move(place), key.device);
  const auto direction = [&](int from) {
    const Seat seat{meeting, from == low ? 0U : 1U, from == spec_.rank ? 0 : 1, 2};
    return std::make_unique<Queue>(queue_site(key.device), seat);
  };
  auto wanted = direction(key.from);
  auto other = direction(key.to);
  wanted->set_partner(other.get());
  other->set_partner(wanted.get());
  queues_[{key.device, key.to, key.from}] = std::move(other);
  return *(queues_[key] = std::move(wanted));
}

void NcclGroup::add_split_queue(int device, std::unique_ptr<Communicator> slot) {
  const std::scoped_lock lock(mutex_);
  const CurrentDevice current(*world_->device, device);
  queues_[{device}] = std::make_unique<Queue>(queue_site(device), std::move(slot));
  first_device_ = device;
}

bool NcclGroup::has_communicator(int device) {
  const std::scoped_lock lock(mutex_);
  return queues_.contains({device});
}

int NcclGroup::own_rank() const {
  return spec_.global_ranks[static_cast<std::size_t>(spec_.rank)];
}

void NcclGroup::throw_if_failed(Lock& lock) {
  if (!failure_) return;
  const std::exception_ptr failure = failure_;
  await_telling(lock);
  std::rethrow_exception(failure);
}

void NcclGroup::await_telling(Lock& lock) {
  // The process may end once its caller knows: then nobody would tell the others.
  const std::shared_future<void> told = told_;
  const Deadline until = telling_ends_;
  lock.unlock();
  if (told.valid()) told.wait_for(until.remaining());
}

Work NcclGroup::run(Launch launch, Call call) {
  require_own_process();
  const bool async = call.async;
  const OpKind kind = call.fingerprint.kind;
  if (world_->compare_calls && kind != OpKind::send && kind != OpKind::receive) compare(call);
  std::shared_ptr<Operation> operation;
  {
    Lock lock(mutex_);
    throw_if_failed(lock);
    try {
      operation = enqueue(std::move(launch), std::move(call));
    } catch (const Error& error) {
      fail(error, Tell::members);
      throw_if_failed(lock);
    }
  }
  if (async) return Work(operation);
  operation->wait(Deadline::never());
  return Work();
}

std::vector<Work> NcclGroup::run_batch(std::vector<Launch> launches, std::vector<Call> calls) {
  require_own_process();
  std::vector<Work> works;
  Lock lock(mutex_);
  throw_if_failed(lock);
  try {
    // With the lock held, so that nothing comes in between.
    for (std::size_t i = 0; i < launches.size(); ++i)
      works.emplace_back(enqueue(std::move(launches[i]), std::move(calls[i])));
  } catch (const Error& error) {
    fail(error, Tell::members);
    throw_if_failed(lock);
  }
  return works;
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
  if (target.advance()) ++moved_;
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
    throw_if_failed(lock);
    if (operation.progress >= progress) return;
    const bool is_late = operation.call.deadline.expired();
    if (is_late) {
      if (const std::optional<Error> late = lateness(waiting_of(operation))) {
        fail(*late, Tell::members);
        throw_if_failed(lock);
      }
    }
    if (deadline.expired())
      throw Error(ErrorCode::kTimeout, operation.fingerprint().describe() + " is not done yet",
                  "the wait had a deadline of its own; the operation goes on");
    pause(lock, looks, is_late ? deadline : deadline.earlier(operation.call.deadline));
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
    for (const auto& [key, queue] : queues_)
      if (queue->advance()) ++moved_;
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
  std::vector<std::shared_ptr<Operation>> operations;
  std::vector<Communicator> ready, unready;
  for (const auto& [key, queue] : queues_) {
    const bool is_ready = queue->phase() == Queue::Phase::ready;
    if (const Communicator communicator = queue->take())
      (is_ready ? ready : unready).push_back(communicator);
    lost_slots_.push_back(queue->take_slot());
    for (std::shared_ptr<Operation>& operation : queue->conclude_all(failure_))
      operations.push_back(std::move(operation));
  }
  end_communicators(std::move(operations), std::move(ready), std::move(unready));
  // Sync calls return before the device is done: whoever reads results now reads garbage.
  base::log::error(base::log::Component::kCollectives,
                   "group '{}' failed; results of its unfinished calls are not to be used:\n{}",
                   spec_.name, error.what());
  if (tell != Tell::nobody && size() > 1) {
    const auto told = std::make_shared<std::promise<void>>();
    told_ = told->get_future();
    telling_ends_ = Deadline::after(kTellingGrace);
    const auto wording = tell == Tell::members ? StatusBoard::Wording::of_a_peer
                                               : StatusBoard::Wording::as_it_stands;
    world_->herald.post(
        [board = board_, error, wording, told]() -> std::optional<Herald::Duration> {
          try {
            board->publish_failure(error, wording);
          } catch (const Error&) {  // without the store they meet their own deadline
          }
          told->set_value();
          return std::nullopt;
        });
  }
  changed_.notify_all();
  world_->watchdog.call();
}

void NcclGroup::end_communicators(std::vector<std::shared_ptr<Operation>> operations,
                                  std::vector<Communicator> ready,
                                  std::vector<Communicator> unready) {
  if (ready.empty() && unready.empty()) {
    for (const std::shared_ptr<Operation>& operation : operations) operation->release();
    return;
  }
  Ending::Plan plan;
  plan.nccl = world_->nccl;
  plan.device = world_->device;
  plan.device_index = queues_.begin()->first.device;
  plan.group = spec_.name;
  // NCCL joins the thread that makes one before it tells it to end, and that thread may stand
  // behind a kernel of those that are ready.
  plan.to_abort = std::move(ready);
  plan.to_abort.insert(plan.to_abort.end(), unready.begin(), unready.end());
  plan.operations = std::move(operations);
  plan.slots = std::exchange(lost_slots_, {});
  ending_ = Ending::begin(std::move(plan));
}

struct NcclGroup::Inquiry {
  const void* who = nullptr;
  TimePoint started;  ///< of it: a later call may have the same address
  TimePoint until;
  std::mutex mutex;
  bool answered = false;
  std::vector<int> missing;
  std::string others;
};

NcclGroup::Waiting NcclGroup::waiting_of(const Operation& operation) const {
  const auto queue = queues_.find(operation.launch.queue);
  return {&operation, operation.fingerprint(), operation.started(),
          queue == queues_.end() ? nullptr : queue->second.get(),
          is_message(operation.fingerprint().kind) && operation.launch.queue.from < 0};
}

void NcclGroup::inquire(const Waiting& waiting) {
  inquiry_ = std::make_shared<Inquiry>();
  inquiry_->who = waiting.who;
  inquiry_->started = waiting.started;
  inquiry_->until = std::chrono::steady_clock::now() + kInquiryGrace;
  const std::shared_ptr<Meeting> meeting = waiting.queue ? waiting.queue->meeting() : nullptr;
  world_->herald.post([inquiry = inquiry_, board = board_, mine = waiting.fingerprint,
                       meeting]() -> std::optional<Herald::Duration> {
    std::string others;
    std::vector<int> missing;
    try {
      if (meeting) missing = meeting->missing();
      others = board->describe_others(mine);
    } catch (const Error& error) {
      others = "nothing is known of the others: " + error.summary();
    }
    const std::scoped_lock lock(inquiry->mutex);
    inquiry->missing = std::move(missing);
    inquiry->others = std::move(others);
    inquiry->answered = true;
    return std::nullopt;
  });
}

std::optional<Error> NcclGroup::lateness(const Waiting& waiting) {
  const auto is_of = [&](const Inquiry& inquiry) {
    return inquiry.who == waiting.who && inquiry.started == waiting.started;
  };
  const bool is_another = inquiry_ && !is_of(*inquiry_);
  const auto now = std::chrono::steady_clock::now();
  if (!inquiry_ || (is_another && now >= inquiry_->until)) inquire(waiting);
  if (!is_of(*inquiry_)) return std::nullopt;
  std::string others = "nothing is known of the others: the store does not answer";
  std::vector<int> missing;
  {
    const std::scoped_lock lock(inquiry_->mutex);
    if (!inquiry_->answered && now < inquiry_->until) return std::nullopt;
    if (inquiry_->answered) {
      others = inquiry_->others;
      missing = inquiry_->missing;
    }
  }
  std::string why = waiting.queue ? waiting.queue->obstacle() : "";
  why += (why.empty() || others.empty() ? "" : "; ") + others;
  if (waiting.is_of_batch)
    why += "; a message of a batch meets one of a batch, in the same order among the group's calls";
  return Error(ErrorCode::kTimeout,
               waited_text(own_rank(), now - waiting.started, waiting.fingerprint, spec_.name,
                           missing.empty() ? "" : rank_list(missing)),
               why, "raise the timeout if they only need longer; look at the other ranks' output");
}

void NcclGroup::reject(const Fingerprint& fingerprint, const Error& error) {
  // A child's mistakes are not its parent's.
  if (size() == 1 || fork_mark_.in_child()) return;
  Lock lock(mutex_);
  fail(Error(error.code(),
             fmt::format("{} was rejected: {}", fingerprint.describe(), error.summary()),
             error.why(), error.remedy()),
       Tell::members);
  await_telling(lock);
}

void NcclGroup::abort(const Error& error) {
  require_own_process();
  Lock lock(mutex_);
  fail(error, Tell::members_alike);
  await_telling(lock);
}

}  // namespace dtrun::collectives::nccl
