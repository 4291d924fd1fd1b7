// GroupEngine: one group's operations in flight on this rank. Short collectives run one after the
// other in the order of their calls, long ones likewise beside them, and sends and receives beside
// both. A collective that has memory in common with an earlier one of the other lane waits for it:
// as waits lead to earlier calls only, they never go in a circle. Nobody owns the job of moving
// them: a blocking call, a wait() or the progress thread drives the engine, whoever has time. It
// holds the group's failure, from which there is no way back. Thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "algorithm.h"
#include "delivery_steps.h"
#include "disagreement.h"
#include "dtrun/base/log.h"
#include "dtrun/base/quick_mutex.h"
#include "group_channels.h"
#include "operation.h"
#include "point_to_point.h"
#include "progress_thread.h"
#include "schedule.h"
#include "shared_steps.h"
#include "world.h"

namespace dtrun::collectives::cpu {

/// The engine's lock. What is handed to it while it is held, the callbacks behind operations, runs
/// when it has been given back, on that thread, so that a callback may use the group. Thread-safe.
class EngineMutex {
 public:
  void lock() { mutex_.lock(); }
  [[gnu::always_inline]] void unlock() {
    if (later_.empty()) [[likely]]
      return mutex_.unlock();
    unlock_and_run();
  }

  /// Under the lock. @param call never throws
  void run_later(std::function<void()> call) { later_.push_back(std::move(call)); }

  /// The same lock for a thread that runs none: it holds what a callback could want. Another thread
  /// must take the lock soon.
  class Quiet {
   public:
    explicit Quiet(EngineMutex& whole) : whole_(whole) {}
    void lock() { whole_.mutex_.lock(); }
    void unlock() { whole_.mutex_.unlock(); }

   private:
    EngineMutex& whole_;
  };

 private:
  void unlock_and_run();

  base::QuickMutex mutex_;
  std::vector<std::function<void()>> later_;
};

/// What a rank of another machine says of itself when it is asked.
struct MemberStatus {
  BoardLine line;            ///< of its newest call, maybe a message or another group's
  std::uint64_t called = 0;  ///< the sequence of its last collective of this group
};
static_assert(std::is_trivially_copyable_v<MemberStatus>);  // it travels as it is

class GroupEngine : public GroupListener,
                    public Drivable,
                    public std::enable_shared_from_this<GroupEngine> {
 public:
  GroupEngine(std::shared_ptr<World> world, GroupSpec spec, base::Deadline::Duration timeout);
  ~GroupEngine() override;
  GroupEngine(const GroupEngine&) = delete;
  GroupEngine& operator=(const GroupEngine&) = delete;

  const GroupSpec& spec() const { return spec_; }
  const std::shared_ptr<World>& world() const { return world_; }
  int size() const { return static_cast<int>(spec_.world_ranks.size()); }
  TransportCounters counters();
  /// By member: equal numbers share memory.
  std::vector<int> machines() const;
  /// The members by machine.
  const MachineLists& machine_lists() const { return machine_lists_; }

  /// @throws Error kUsage in a forked child
  void require_own_process() const {
    if (world_->in_child()) [[unlikely]]
      refuse_in_child();
  }
  /// The same. @throws the group's first error
  void require_open();
  /// Takes the operation in; from now on it is moved. @throws the group's first error
  void submit_collective(const std::shared_ptr<Operation>& operation);
  Situation situation_of(const CollectiveView& collective) const {
    return collectives::situation_of(collective, place_, world_->crowding(),
                                     world_->costs().limits());
  }
  /// Of a collective of that kind, smaller messages are not lent.
  std::size_t least_lent_in(OpKind kind) const {
    return least_lent_bytes(kind, world_->crowding(), channels_.ring_capacity());
  }
  /// Tells who asks for it (DTRUN_LOGS=+collectives) which way the collective goes, and why.
  bool says_ways() const { return says_ways_; }
  void log_way(const CollectiveView& collective, const Situation& situation, Way way) const;
  void log_way(const CollectiveView& collective, Way way) const;
  void log_in_place(const Fingerprint& fingerprint) const;
  /// Of a call that could have gone in place. @param way by which it goes
  void log_elsewhere(const Fingerprint& fingerprint, Way way) const;
  Meeting& meeting(Lane lane) { return channels_.meeting(lane); }
  /// A blocking collective by posts, parcels or short messages, without an Operation unless
  /// somebody is late. @return false: it goes another way, nothing was done
  bool run_now(const CollectiveView& collective, base::Deadline::Duration timeout);
  /// Short messages, without an Operation: is_done tells which of them are over.
  void exchange_now(std::span<ShortMessage> messages);
  void submit_send(const std::shared_ptr<SendOperation>& send);
  void submit_receive(const std::shared_ptr<ReceiveOperation>& receive);
  /// Drives until the operation is done, and rethrows its error.
  /// @throws Error kTimeout at the deadline; the operation goes on
  void wait(Operation& operation, base::Deadline deadline);
  /// Lets the progress thread drive until nothing is in flight.
  void drive_in_background();
  /// This rank rejects its own call: the group fails everywhere.
  void reject(const Fingerprint& fingerprint, const base::Error& error);
  /// Members that have ended or left, as far as can be told now.
  std::vector<int> ended_ranks();
  /// The group fails everywhere with that error. Any thread.
  void abort(const base::Error& error);
  /// Leaves the group: finishes what was sent, tells the members. Idempotent.
  void shutdown();

  Outcome drive() override;
  /// The same, by a thread of the owner's.
  Outcome drive_for_owner();
  /// Polls until they are done, but not for long. @return whether they are
  bool drive_a_while(const std::vector<std::shared_ptr<Operation>>& operations);
  base::Deadline next_look() override;
  Attendance attendance() override;

  void on_frame(int world_rank, const Frame& frame) override;
  void on_data_connection(int world_rank, const DataHello& hello, base::UniqueFd fd) override;
  void on_member_lost(int world_rank, const base::Error& error) override;
  void on_trouble(const base::Error& error) override;

 private:
  enum class Tell { nobody, members };
  /// A rank that has waited this long asks the members what they are doing.
  static constexpr auto kPatience = std::chrono::milliseconds(100);

  [[noreturn]] void refuse_in_child() const;

  // Without mutex_.
  /// By posts in one step, or by parcels that lie beside posts. @return false: nothing was done
  bool meet_now(const CollectiveView& collective, base::Deadline::Duration timeout);
  template <OpKind kKind>
  bool meet_as(const CollectiveView& collective, base::Deadline::Duration timeout);
  /// @param plan by posts or parcels
  template <typename Plan>
  [[gnu::always_inline]] void meet_by(const Plan& plan, base::Deadline::Duration timeout);
  /// @param parcels null: all goes in messages @return false: nothing was done
  bool deliver_now(const CollectiveView& collective, Parcels* parcels,
                   base::Deadline::Duration timeout);

  // All under mutex_.
  void admit(const std::shared_ptr<Operation>& operation);
  void enqueue(const std::shared_ptr<Operation>& operation);
  /// Nothing has happened or is in flight that an operation would have to look at.
  bool is_eventless() const {
    return idle() && announced_.empty() && !channels_.anybody_left() &&
           channels_.table().long_waits.load(std::memory_order_acquire) == long_waits_seen_;
  }
  template <typename Plan>
  [[gnu::always_inline]] bool take_now(const Plan& plan, SharedSteps& steps, std::uint64_t& number);
  /// What is left becomes an operation. @return null: it is over
  std::shared_ptr<Operation> meet_later(const SharedPlan& plan, const SharedSteps& steps,
                                        std::uint64_t number, base::Deadline::Duration timeout);
  /// @param parcels null: all goes in messages @param rest what is not done of it, under way; else
  /// null @return false: nothing was done
  bool deliver_now(const CollectiveView& collective, Parcels* parcels,
                   base::Deadline::Duration timeout, std::shared_ptr<Operation>& rest);
  /// Of an exchange by a plan in which this rank gives one part to a rank that shares memory, or
  /// gets one: with fewer questions than deliver_now(). @return false: nothing was done
  bool pass_one_now(const CollectiveView& collective, base::Deadline::Duration timeout);
  /// The channel for a message of so many bytes that goes at once. @return null: it does not
  SendChannel* with_room_for(int peer, std::size_t bytes);
  ReceiveChannel* with_whole_of(int peer, std::size_t bytes);
  /// What is left of a collective of which the steps are done becomes an operation.
  std::shared_ptr<Operation> begin_rest(const CollectiveView& collective, Way way,
                                        const DeliverySteps& steps, std::uint64_t number,
                                        base::Deadline::Duration timeout);
  /// The same of a plan by parcels. @return not in flight yet; null: it is over
  std::shared_ptr<Operation> begin_rest(const SharedPlan& plan, const SharedSteps& begun,
                                        std::uint64_t number, base::Deadline::Duration timeout);
  bool show_now(Parcels& parcels, ShortCall* call);
  void take_begun_number(Operation& message);
  /// Of begun_messages_ those that did not become an operation: the group or the call has failed.
  void end_begun_messages();
  // Parts of exchange_now().
  Taken receive_now(const ShortMessage& message);
  static void end_message(ShortMessage& message);
  void end_sends(std::span<ShortMessage> messages, std::int64_t begun_ns);
  void begin_message(const ShortMessage& message, std::int64_t begun_ns);
  void go_on_receiving(std::span<const ShortMessage> messages, std::uint64_t number,
                       std::size_t place);
  bool receive_now(DeliverySteps& steps, const Deliveries& all, const CollectiveView& collective,
                   std::uint64_t number);
  /// Somebody who polls asks less of the sockets: the next poll is not far.
  enum class Asks { for_a_poll, before_a_sleep };
  void look_at_connections(Asks asks);
  bool step_all(Asks asks);
  /// May throw what an operation throws.
  bool step(Asks asks);
  void look_around();
  bool is_to_announce(const Operation& operation) const;
  void watch_missing(Operation& operation);
  void watch_passing(Operation& operation);
  void announce(const Operation& operation);
  void ask_remote_members(const Fingerprint& fingerprint);
  void tell_remote_members(const Frame& frame);
  void tell_failure(const GroupFailure& failure);
  void hear_failure();
  /// Writes the call to shared memory, where members on this machine look it up.
  void note(const Fingerprint& ours, Lane lane) {
    channels_.own_history().write(ours);
    const std::deque<std::shared_ptr<Operation>>& in_turn = collectives(lane);
    const std::uint64_t first =
        in_turn.empty() ? ours.sequence : in_turn.front()->fingerprint().sequence;
    channels_.table().lines(lane)[spec_.rank].over.store(first - 1, std::memory_order_release);
    channels_.own_line().called.store(ours.sequence, std::memory_order_release);
  }
  void compare_with_waiting();
  void compare_with_history(int rank, const Fingerprint& ours);
  void on_announce(int rank, const Fingerprint& theirs);
  void note_called(int rank, std::uint64_t sequence);
  /// To a rank on another machine.
  void send_status(int rank);
  void remember(const Fingerprint& ours, Lane lane);
  void compare(int rank, const Fingerprint& theirs, const Fingerprint& ours);
  void on_disagreement(const Disagreement& found);
  void on_disagreement(const EarlierDisagreement& found);
  void finished(Operation& operation);
  void fail(GroupFailure failure, Tell tell);
  void fail_alone(const base::Error& error);
  int whose_victim() const;
  void throw_if_failed() const;
  /// No call fails at once.
  bool is_sound() const { return !failure_ && !shut_down_ && !channels_.table().has_failed(); }
  /// @throws the group's first error. @param number of the call in the rank's record; 0: it does
  /// not stand there yet
  void require_sound(const Fingerprint& fingerprint, std::uint64_t bytes, std::uint64_t number = 0);
  bool idle() const {
    return collectives_[0].empty() && collectives_[1].empty() && point_to_point_.idle();
  }
  /// Of the members, once the channels are there.
  GroupPlace find_place();
  bool has_connections() const { return place_.sharing != Sharing::all; }
  std::deque<std::shared_ptr<Operation>>& collectives(Lane lane) {
    return collectives_[static_cast<std::size_t>(lane)];
  }
  /// Of the other lane, the last collective that has memory in common with this one.
  std::shared_ptr<const Operation> last_in_common(const Operation& operation);
  bool step_lane(Lane lane);
  std::vector<std::shared_ptr<Operation>> in_flight() const;

  // Texts.
  GroupFailure disagreement(const Disagreement& found) const;
  GroupFailure passed_by(int peer, const Fingerprint& ours) const;
  GroupFailure left(int peer) const;
  GroupFailure broken(int peer) const;
  GroupFailure stuck(const base::Error& error) const;
  base::Error lost_rest(int peer) const;
  GroupFailure timed_out(const Operation& operation);
  /// Of the ranks that the operation waits for, those that have not come to it, where that is
  /// known.
  std::vector<int> absent(const Operation& operation);
  bool has_come(int rank, const Fingerprint& ours) const;
  std::optional<BoardLine> shown_since(int rank, const Fingerprint& ours);
  const Card& card(int rank) const;
  int global_rank(int rank) const { return card(rank).global_rank; }
  int world_rank_of(int rank) const { return spec_.world_ranks[static_cast<std::size_t>(rank)]; }
  std::optional<int> group_rank(int world_rank) const;

  bool spin(const Operation& operation);
  void await_ring(Operation& operation, base::Deadline deadline);

  const std::shared_ptr<World> world_;
  const GroupSpec spec_;
  const RecordedGroup recorded_group_;
  const base::Deadline::Duration timeout_;
  /// Asked once: the question takes a share of a small collective's time.
  const bool says_ways_ =
      base::log::enabled(base::log::Component::kCollectives, base::log::Level::kDebug);

  EngineMutex mutex_;
  /// For the watcher thread: it holds the world's list of groups, which a callback may need. The
  /// progress thread has all that a Work is for, and comes when the doorbell rings.
  EngineMutex::Quiet watchers_mutex_{mutex_};
  // For attendance(): how often waiting threads have looked whether anything moves, and how often
  // they had when it was asked last; how many of them sleep; and when a thread that does not wait
  // looked last, for a new operation or to know whether one is done.
  std::atomic<std::uint32_t> looks_{0};
  std::uint32_t looks_seen_ = 0;
  std::atomic<int> asleep_{0};
  std::atomic<std::int64_t> driven_ns_{0};
  GroupChannels channels_;
  const MachineLists machine_lists_;
  const GroupPlace place_;
  // Asked in each short call.
  const bool has_posts_;
  const std::size_t most_beside_posts_;
  std::array<std::deque<std::shared_ptr<Operation>>, kCollectiveLanes> collectives_;
  Lane stepped_ = Lane::prompt;  ///< of these, the one that is being moved
  PointToPoint point_to_point_;
  std::vector<std::byte> rows_;  ///< for DeliverySteps
  /// A receive that the record knows already and that is to become an operation now, or a send of
  /// which a connection has taken a part.
  struct BegunMessage {
    std::uint64_t sequence;
    std::uint64_t number;  ///< in the record
  };
  std::vector<BegunMessage> begun_messages_;
  std::optional<GroupFailure> failure_;
  bool refusal_recorded_ = false;  ///< of a call after the failure
  bool shut_down_ = false;
  /// A connection has ended whose reason the watcher has not told yet.
  std::optional<std::pair<int, base::Deadline>> broken_;
  /// A peer is ahead of this rank, without having taken part: it has been asked what it called.
  std::optional<std::pair<Disagreement, base::Deadline>> doubt_;
  std::map<int, Fingerprint> announced_;  ///< group rank of another machine to what it waits in
  /// Group rank of another machine to the newest collective that it is known to have called.
  std::map<int, std::uint64_t> called_;
  std::uint32_t long_waits_seen_ = 0;  ///< of those on this machine
};

}  // namespace dtrun::collectives::cpu
