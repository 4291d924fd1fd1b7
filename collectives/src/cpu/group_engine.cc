#include "group_engine.h"

#include <fmt/core.h>

#include <algorithm>
#include <thread>

#include "dtrun/base/check.h"
#include "dtrun/base/log.h"
#include "group_failure_texts.h"
#include "pause.h"

namespace dtrun::collectives::cpu {

using base::Deadline;
using base::Error;
using base::ErrorCode;

namespace {

/// A connection has ended: the watcher gets this long to report the peer's cause of death, for
/// which it waits itself, or that it has left.
constexpr auto kBrokenGrace = std::chrono::milliseconds(1500);
/// A waiting rank renews its watch over its peers this often, because another wait of this process
/// may have replaced it.
constexpr auto kWatchInterval = std::chrono::seconds(1);
/// A waiting rank polls this long before it sleeps. A wake-up costs less than this.
constexpr auto kSpin = std::chrono::microseconds(30);

/// Counts a thread while it sleeps.
class Asleep {
 public:
  explicit Asleep(std::atomic<int>& count) : count_(count) {
    count_.fetch_add(1, std::memory_order_seq_cst);
  }
  ~Asleep() { count_.fetch_sub(1, std::memory_order_seq_cst); }
  Asleep(const Asleep&) = delete;
  Asleep& operator=(const Asleep&) = delete;

 private:
  std::atomic<int>& count_;
};

std::vector<int> global_ranks_of(const World& world, const GroupSpec& spec) {
  std::vector<int> ranks;
  for (const int world_rank : spec.world_ranks) ranks.push_back(world.card(world_rank).global_rank);
  return ranks;
}

}  // namespace

GroupEngine::GroupEngine(std::shared_ptr<World> world, GroupSpec spec, Deadline::Duration timeout)
    : world_(std::move(world)),
      spec_(std::move(spec)),
      recorded_group_(spec_.name, spec_.rank, global_ranks_of(*world_, spec_),
                      &world_->cell(world_->rank()).board),
      timeout_(timeout),
      channels_(*world_, spec_),
      machine_lists_(collectives::machine_lists(machines())),
      place_(find_place()),
      has_posts_(size() > 1 && place_.sharing == Sharing::all),
      most_beside_posts_(most_beside_posts(size(), world_->costs().limits())),
      point_to_point_(spec_.rank, static_cast<int>(spec_.world_ranks.size()),
                      [this](Operation& operation) { finished(operation); }) {
  world_->add_group(spec_.id, *this);
}

GroupEngine::~GroupEngine() {
  shutdown();
}

TransportCounters GroupEngine::counters() {
  const std::scoped_lock lock(mutex_);
  return channels_.counters();
}

std::vector<int> GroupEngine::machines() const {
  std::map<std::string, int> numbers;
  std::vector<int> machines;
  for (int rank = 0; rank < size(); ++rank) {
    const std::string& commons = card(rank).commons;
    // A rank that shares memory with nobody counts as a machine of its own.
    const std::string name = commons.empty() ? "rank " + std::to_string(rank) : commons;
    machines.push_back(numbers.try_emplace(name, static_cast<int>(numbers.size())).first->second);
  }
  return machines;
}

GroupPlace GroupEngine::find_place() {
  GroupPlace place{size(), static_cast<int>(machine_lists_.size())};
  if (!channels_.meeting(Lane::prompt).possible()) return place;
  place.sharing = Sharing::all;
  place.ranks_per_core = (size() - 1) / world_->cores() + 1;
  return place;
}

/// Called before any lock is taken: in a forked child a lock may be held by a thread that does not
/// exist there.
void GroupEngine::refuse_in_child() const {
  throw forked_child_error(spec_.name, "connections and shared memory");
}

void EngineMutex::unlock_and_run() {
  const std::vector<std::function<void()>> now = std::exchange(later_, {});
  mutex_.unlock();
  for (const std::function<void()>& call : now) call();
}

void GroupEngine::throw_if_failed() const {
  if (failure_) throw failure_->error;
  if (shut_down_) throw left_error(spec_.name);
}

void GroupEngine::require_open() {
  require_own_process();
  const std::scoped_lock lock(mutex_);
  hear_failure();
  throw_if_failed();
}

/// What fails at once stands in the rank's record as well.
void GroupEngine::require_sound(const Fingerprint& fingerprint, std::uint64_t bytes,
                                std::uint64_t number) {
  hear_failure();
  // The first of them only: a program that tries again must not lose what came before.
  if (failure_ && (!std::exchange(refusal_recorded_, true) || number != 0)) {
    if (number == 0) number = world_->record().begin(fingerprint, recorded_group_, bytes);
    world_->record().end(number, RankRecord::Outcome::failed);
  }
  throw_if_failed();
}

void GroupEngine::admit(const std::shared_ptr<Operation>& operation) {
  require_sound(operation->fingerprint(), operation->bytes(), operation->record_number);
  operation->watch_next = Deadline::at(operation->started() + kPatience);
  if (operation->record_number == 0)
    operation->record_number =
        world_->record().begin(operation->fingerprint(), recorded_group_, operation->bytes());
}

void GroupEngine::submit_collective(const std::shared_ptr<Operation>& operation) {
  require_own_process();
  const std::scoped_lock lock(mutex_);
  enqueue(operation);
}

void GroupEngine::enqueue(const std::shared_ptr<Operation>& operation) {
  admit(operation);
  operation->after = last_in_common(*operation);
  collectives(operation->lane()).push_back(operation);
  remember(operation->fingerprint(), operation->lane());
}

std::shared_ptr<const Operation> GroupEngine::last_in_common(const Operation& operation) {
  const Lane other_lane = operation.lane() == Lane::prompt ? Lane::bulk : Lane::prompt;
  const std::deque<std::shared_ptr<Operation>>& earlier = collectives(other_lane);
  const auto last = std::find_if(earlier.rbegin(), earlier.rend(), [&](const auto& other) {
    return operation.conflicts_with(*other);
  });
  return last == earlier.rend() ? nullptr : *last;
}

/// Records the call, and compares it with what waiting peers have announced for the same place.
void GroupEngine::remember(const Fingerprint& ours, Lane lane) {
  note(ours, lane);
  compare_with_waiting();
  const bool had_announced = !announced_.empty();
  // An announcement is used once. While one is left, the short way is not taken.
  std::erase_if(announced_, [&](const auto& said) {
    const auto& [rank, theirs] = said;
    if (theirs.sequence > ours.sequence) return false;
    if (theirs.sequence == ours.sequence) compare(rank, theirs, ours);
    // Its timeout must not name this rank any more.
    send_status(rank);
    return true;
  });
  if (announced_.empty() && had_announced) world_->record().end_awaited(recorded_group_);
}

/// What the record knows of the message already.
void GroupEngine::take_begun_number(Operation& message) {
  const Fingerprint& print = message.fingerprint();
  // Those of a barrier are numbered by collectives.
  if (!is_message(print.kind)) return;
  const auto begun = std::ranges::find(begun_messages_, print.sequence, &BegunMessage::sequence);
  if (begun == begun_messages_.end()) return;
  message.record_number = begun->number;
  begun_messages_.erase(begun);
}

void GroupEngine::submit_send(const std::shared_ptr<SendOperation>& send) {
  require_own_process();
  const std::scoped_lock lock(mutex_);
  if (point_to_point_.is_after_a_lost_rest(*send)) fail_alone(lost_rest(send->destination()));
  take_begun_number(*send);
  admit(send);
  point_to_point_.add(send);
  if (send->fingerprint().kind == OpKind::monitored_barrier)
    remember(send->fingerprint(), Lane::prompt);
  // A message to this rank itself: no peer rings the doorbell for the thread that receives it.
  if (send->done()) world_->doorbell().ring();
}

void GroupEngine::submit_receive(const std::shared_ptr<ReceiveOperation>& receive) {
  require_own_process();
  const std::scoped_lock lock(mutex_);
  take_begun_number(*receive);
  admit(receive);
  point_to_point_.add(receive);
  if (receive->fingerprint().kind == OpKind::monitored_barrier)
    remember(receive->fingerprint(), Lane::prompt);
}

void GroupEngine::drive_in_background() {
  world_->progress_thread().add(*this);
}

// ---- driving

void GroupEngine::look_at_connections(Asks asks) {
  // Where ranks share cores a poll yields, and one more call is nothing beside that.
  if (asks == Asks::for_a_poll && world_->crowding() != Crowding::crowded) {
    channels_.sockets().look_or_try();
  } else {
    channels_.sockets().look();
  }
}

bool GroupEngine::step(Asks asks) {
  look_at_connections(asks);
  bool moved = step_lane(Lane::prompt);
  moved |= step_lane(Lane::bulk);
  moved |= point_to_point_.step(channels_);
  // The peer may wait for what was lost with the connection, where this rank waits for nothing.
  const int cut_off = channels_.cut_off();
  if (cut_off >= 0 && !moved) throw BrokenConnection{cut_off};
  if (cut_off < 0) broken_.reset();
  return moved;
}

bool GroupEngine::step_lane(Lane lane) {
  bool moved = false;
  stepped_ = lane;
  std::deque<std::shared_ptr<Operation>>& in_turn = collectives(lane);
  while (!in_turn.empty()) {
    const std::shared_ptr<Operation> head = in_turn.front();
    if (head->after && !head->after->done()) break;
    head->after.reset();
    moved |= head->step(channels_);
    if (!head->done()) break;
    in_turn.pop_front();
    if (head->by_messages()) meeting(lane).pass(head->fingerprint());
    finished(*head);
  }
  return moved;
}

bool GroupEngine::step_all(Asks asks) {
  if (failure_ || doubt_ || idle()) return false;
  try {
    return step(asks);
  } catch (const Disagreement& found) {
    on_disagreement(found);
  } catch (const EarlierDisagreement& found) {
    on_disagreement(found);
  } catch (const LeftError& error) {
    // A peer tells of a failure before it leaves: hear that first, so that the cause is named and
    // not the leaving.
    hear_failure();
    fail(left(error.peer), Tell::members);
  } catch (const BrokenConnection& error) {
    if (!broken_ || broken_->first != error.peer)
      broken_.emplace(error.peer, Deadline::after(kBrokenGrace));
    if (broken_->second.expired()) fail(broken(error.peer), Tell::members);
    return false;
  } catch (const Error& error) {
    fail_alone(error);
  } catch (const std::exception& error) {
    fail_alone(Error(ErrorCode::kSystem, fmt::format("cannot go on: {}", error.what())));
  }
  return true;
}

Drivable::Outcome GroupEngine::drive() {
  const std::scoped_lock lock(mutex_);
  const bool moved = step_all(Asks::before_a_sleep);
  if (!moved) look_around();
  if (idle()) {
    // Waiters of this rank sleep on the doorbell, not on the operation.
    if (moved) world_->doorbell().ring();
    return Outcome::idle;
  }
  if (moved) world_->doorbell().ring();
  return moved ? Outcome::moved : Outcome::waiting;
}

Drivable::Outcome GroupEngine::drive_for_owner() {
  driven_ns_.store(monotonic_ns(), std::memory_order_relaxed);
  return drive();
}

Drivable::Attendance GroupEngine::attendance() {
  // Who drives more seldom computes between, or waits in another group.
  constexpr std::int64_t kMomentNs = 100'000;
  if (asleep_.load(std::memory_order_seq_cst) > 0) return Attendance::asleep;
  const std::uint32_t looks = looks_.load(std::memory_order_relaxed);
  if (std::exchange(looks_seen_, looks) != looks) return Attendance::moves;
  const bool is_driven = monotonic_ns() - driven_ns_.load(std::memory_order_relaxed) < kMomentNs;
  return is_driven ? Attendance::moves : Attendance::none;
}

bool GroupEngine::drive_a_while(const std::vector<std::shared_ptr<Operation>>& operations) {
  const auto is_done = [](const auto& operation) { return operation->done(); };
  // By the clock: a yield may take as long as another rank computes.
  const Crowding crowding = world_->crowding();
  const Deadline end = Deadline::after(time_to_exchange(crowding));
  for (int look = 0; look == 0 || !end.expired(); ++look) {
    looks_.fetch_add(1, std::memory_order_relaxed);
    {
      const std::scoped_lock lock(mutex_);
      if (step_all(Asks::for_a_poll)) world_->doorbell().ring();
    }
    if (std::ranges::all_of(operations, is_done)) return true;
    world_->pause(look);
  }
  return false;
}

std::vector<std::shared_ptr<Operation>> GroupEngine::in_flight() const {
  std::vector<std::shared_ptr<Operation>> all = point_to_point_.operations();
  for (const auto& lane : collectives_) all.insert(all.end(), lane.begin(), lane.end());
  return all;
}

Deadline GroupEngine::next_look() {
  const std::scoped_lock lock(mutex_);
  if (!failure_ && !idle()) {
    try {
      channels_.sockets().ring_when_ready();
    } catch (const Error& error) {
      fail_alone(error);
    }
  }
  Deadline next = broken_ ? broken_->second : Deadline::never();
  if (doubt_) next = next.earlier(doubt_->second);
  for (const std::shared_ptr<Operation>& operation : in_flight()) {
    next = next.earlier(operation->call().deadline).earlier(operation->watch_next);
    if (is_to_announce(*operation))
      next = next.earlier(Deadline::at(operation->started() + kPatience));
  }
  return next;
}

/// Whether the members must still be told that this rank waits in this collective.
bool GroupEngine::is_to_announce(const Operation& operation) const {
  if (operation.announced) return false;
  if (operation.fingerprint().kind == OpKind::monitored_barrier) return true;
  return std::ranges::any_of(collectives_, [&](const auto& lane) {
    return !lane.empty() && lane.front().get() == &operation;
  });
}

/// What a waiting rank checks: the job's end, deadlines, and whether it is time to ask the members.
void GroupEngine::look_around() {
  // A member's own reason comes before the launcher's, who only sees that a process has ended.
  hear_failure();
  if (failure_) return;
  if (std::optional<GroupFailure> job = world_->job_failure())
    return fail(std::move(*job), Tell::nobody);
  for (const std::shared_ptr<Operation>& operation : in_flight())
    if (operation->call().deadline.expired()) return fail(timed_out(*operation), Tell::members);
  if (doubt_ && doubt_->second.expired()) return fail(disagreement(doubt_->first), Tell::members);
  for (const std::shared_ptr<Operation>& operation : in_flight()) {
    if (failure_) return;
    if (operation->watch_next.expired()) watch_missing(*operation);
    if (failure_) return;
    if (is_to_announce(*operation) && Deadline::Clock::now() - operation->started() >= kPatience) {
      // A monitored barrier has one message per member: one announcement covers them all.
      for (const std::shared_ptr<Operation>& other : in_flight())
        if (other->fingerprint().sequence == operation->fingerprint().sequence)
          other->announced = true;
      announce(*operation);
    }
  }
}

/// Watches for the death of missing peers on this machine. The death of a peer on another machine
/// ends its connection.
void GroupEngine::watch_missing(Operation& operation) {
  std::size_t watched = 0;
  for (const int peer : operation.missing()) {
    if (peer == spec_.rank || !channels_.shares_memory(peer)) continue;
    if (++watched > World::kMostWatched) break;
    try {
      world_->watch_peer(spec_.world_ranks[static_cast<std::size_t>(peer)]);
    } catch (const Error& error) {
      return fail_alone(error);
    }
  }
  operation.watch_next = watched == 0 ? Deadline::never() : Deadline::after(kWatchInterval);
  if (!failure_) watch_passing(operation);
}

void GroupEngine::wait(Operation& operation, Deadline deadline) {
  if (!operation.done()) require_own_process();
  while (!operation.done()) {
    if (!spin(operation)) await_ring(operation, deadline);
    if (operation.done()) break;
    if (deadline.expired())
      throw Error(
          ErrorCode::kTimeout,
          operation.fingerprint().describe() + " of group '" + spec_.name + "' is not done yet",
          "the wait had a deadline of its own; the operation goes on");
  }
  if (const std::exception_ptr error = operation.exception()) std::rethrow_exception(error);
}

/// Polls until nothing has moved for kSpin. @return whether the operation is done
bool GroupEngine::spin(const Operation& operation) {
  constexpr int kLooksPerClock = 8;
  Deadline::Clock::time_point idle_since{};
  for (int look = 0; !operation.done(); ++look) {
    looks_.fetch_add(1, std::memory_order_relaxed);
    bool moved;
    {
      const std::scoped_lock lock(mutex_);
      moved = step_all(Asks::for_a_poll);
    }
    if (moved) {
      idle_since = {};
      look = 0;
      continue;
    }
    world_->pause(look);
    if (look % kLooksPerClock != 0) continue;
    const Deadline::Clock::time_point now = Deadline::Clock::now();
    if (idle_since == Deadline::Clock::time_point{}) idle_since = now;
    if (now - idle_since >= kSpin) return operation.done();
  }
  return true;
}

void GroupEngine::await_ring(Operation& operation, Deadline deadline) {
  const std::uint32_t ticket = world_->doorbell().take_ticket();
  const Sleeper sleeper(world_->doorbell());
  int waiting_for = -1;
  {
    const std::scoped_lock lock(mutex_);
    if (step_all(Asks::before_a_sleep) || operation.done()) return;
    look_around();
    if (operation.done()) return;
    const std::vector<int> missing = operation.missing();
    if (missing.size() == 1) waiting_for = global_rank(missing.front());
  }
  world_->record().waiting_for(operation.record_number, waiting_for);
  const Deadline next = next_look().earlier(deadline);
  {
    const Asleep asleep(asleep_);
    world_->await_ring(ticket, next);
  }
  world_->progress_thread().end_long_nap();
}

void GroupEngine::finished(Operation& operation) {
  world_->record().end(operation.record_number, operation.exception() ? RankRecord::Outcome::failed
                                                                      : RankRecord::Outcome::done);
  if (std::function<void()> callbacks = operation.take_callbacks())
    mutex_.run_later(std::move(callbacks));
  // Its owner may sleep while another thread takes what came over TCP: then no sender rings.
  world_->doorbell().ring_sleepers();
}

// ---- failing and leaving

void GroupEngine::fail(GroupFailure failure, Tell tell) {
  if (failure_ || shut_down_) return;
  failure_ = std::move(failure);
  world_->record().end_awaited(recorded_group_);
  if (const int cause = whose_victim(); cause >= 0) world_->record().set_victim_of(cause);
  channels_.withdraw_lent();
  end_begun_messages();
  const std::exception_ptr error = std::make_exception_ptr(failure_->error);
  // Before anybody can know of the end, and overwrite its buffers.
  for (const std::shared_ptr<Operation>& operation : in_flight())
    if (operation->shows_memory()) channels_.withdraw_shown(*operation);
  for (const std::shared_ptr<Operation>& operation : in_flight()) {
    operation->complete(error);
    finished(*operation);
  }
  for (auto& lane : collectives_) lane.clear();
  point_to_point_.clear();
  if (tell == Tell::members) tell_failure(*failure_);
  world_->doorbell().ring();
}

/// The global rank to blame; -1: none. A rank that others miss may itself wait for another one, so
/// the chain is followed.
int GroupEngine::whose_victim() const {
  const ErrorCode code = failure_->error.code();
  if (code == ErrorCode::kPeerFailed) return failure_->failed_rank;
  // Of an abort the others are the victims.
  if (code == ErrorCode::kAborted && failure_->failed_rank != global_rank(spec_.rank))
    return failure_->failed_rank;
  if (code != ErrorCode::kTimeout) return -1;
  if (failure_->failed_rank != global_rank(spec_.rank)) return failure_->failed_rank;
  for (const std::shared_ptr<Operation>& operation : in_flight())
    if (const std::vector<int> missing = operation->missing(); !missing.empty())
      return global_rank(missing.front());
  return -1;
}

/// The error is this rank's own; the members are told that it is this rank's.
void GroupEngine::fail_alone(const Error& error) {
  if (failure_ || shut_down_) return;
  fail({error, -1}, Tell::nobody);
  tell_failure(stuck(error));
}

void GroupEngine::reject(const Fingerprint& fingerprint, const Error& error) {
  // A forked child must not end the parent's group.
  if (world_->in_child()) return;
  const std::scoped_lock lock(mutex_);
  if (size() == 1) return;
  fail(rejected_failure(card(spec_.rank), fingerprint, spec_.name, error), Tell::members);
}

void GroupEngine::shutdown() {
  if (world_->in_child()) return;
  {
    const std::scoped_lock lock(mutex_);
    if (shut_down_) return;
  }
  const Deadline deadline = Deadline::after(timeout_);
  for (;;) {
    std::shared_ptr<Operation> last;
    {
      const std::scoped_lock lock(mutex_);
      for (const std::shared_ptr<Operation>& operation : in_flight())
        if (operation->fingerprint().kind != OpKind::receive) last = operation;
    }
    if (!last) break;
    try {
      wait(*last, deadline);
    } catch (const Error&) {
      // Either the group has failed or the deadline is over. Leaving goes on in both cases.
      if (deadline.expired()) break;
    }
  }
  world_->progress_thread().remove(*this);
  world_->remove_group(spec_.id);
  const std::scoped_lock lock(mutex_);
  // This rank may leave because of a failure that another rank reported, and its farewell may
  // overtake that report. It repeats the cause, so that nobody takes its leaving for the cause.
  if (failure_) tell_failure(*failure_);
  fail({left_error(spec_.name), -1}, Tell::nobody);
  for (int rank = 0; rank < size(); ++rank) {
    if (channels_.shares_memory(rank)) continue;
    if (world_->record().line().victim_of >= 0) send_status(rank);
    const LeftRecord record = channels_.sent_to(rank);
    Frame frame{FrameKind::left, spec_.id, ""};
    frame.payload.assign(reinterpret_cast<const char*>(&record), sizeof(record));
    world_->send(spec_.world_ranks[static_cast<std::size_t>(rank)], frame);
  }
  channels_.depart();
  shut_down_ = true;
}

}  // namespace dtrun::collectives::cpu
