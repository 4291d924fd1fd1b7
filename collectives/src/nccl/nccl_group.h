// NcclGroup: the ranks of one group, their queues and their common fate. It launches operations,
// waits for them, and fails as a whole: on a failed call, an asynchronous error, a deadline, a
// peer's word or the job's end its communicators are aborted, once each, by a thread of their own
// (ending.h), and every later call throws the first error. Thread-safe; NCCL is called by one
// thread at a time, except for what ends (ending.h). With the mutex held nobody talks to the store:
// the herald does.
#pragma once

#include <condition_variable>
#include <exception>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "device_api.h"
#include "dtrun/collectives/process_group.h"
#include "fork_mark.h"
#include "nccl/device_activity.h"
#include "nccl/ending.h"
#include "nccl/herald.h"
#include "nccl/operation.h"
#include "nccl/queue.h"
#include "nccl/status_board.h"
#include "nccl/watchdog.h"
#include "rank_record.h"

namespace dtrun::collectives::nccl {

/// What a group shares with the groups split from it.
struct NcclWorld {
  std::shared_ptr<NcclApi> nccl;
  std::shared_ptr<DeviceApi> device;
  std::shared_ptr<rendezvous::Store> store;
  std::shared_ptr<rendezvous::JobPage> job_page;  ///< may be null
  std::shared_ptr<RankRecord> record;             ///< of this rank
  std::string host;                               ///< for messages
  std::string machine;                            ///< equal texts: the same machine
  int local_rank = 0;
  /// Of the tensors that the group takes: a simulated device's memory is the host's.
  tensors::DeviceType tensors_of = tensors::DeviceType::cuda;
  /// TORCH_NCCL_BLOCKING_WAIT: calls and waits return when the device is done.
  HostWait host_wait = HostWait::no;
  /// Compares the ranks' calls before each: TORCH_DISTRIBUTED_DEBUG=DETAIL.
  bool compare_calls = false;
  /// NCCL itself takes several ranks on one GPU: NCCL_MULTI_RANK_GPU_ENABLE.
  bool gpus_are_shared = false;
  /// After it an abort that does not return is said, and not waited for.
  std::chrono::milliseconds abort_patience = std::chrono::seconds(30);
  /// How long a communicator that could be made waits for the kernels of its device.
  std::chrono::milliseconds quiet_patience = std::chrono::milliseconds(200);
  DeviceActivity activity;
  Herald herald;
  Watchdog watchdog;
};

struct NcclGroupSpec {
  std::string key;  ///< what stands before its keys in the store
  std::string name;
  int rank = 0;
  std::vector<int> global_ranks;
  base::Deadline::Duration timeout{};
};

class NcclGroup : public Watched, public std::enable_shared_from_this<NcclGroup> {
 public:
  NcclGroup(std::shared_ptr<NcclWorld> world, NcclGroupSpec spec);
  ~NcclGroup() override;

  const NcclGroupSpec& spec() const { return spec_; }
  NcclWorld& world() { return *world_; }
  int size() const { return static_cast<int>(spec_.global_ranks.size()); }
  /// Where the group works when no tensor says so: on the device of its first collective.
  int default_device();

  Work run(Launch launch, Call call);
  /// Those of one batch, whose first launch makes the calls of all: they go to one queue, one after
  /// the other. @return a Work each
  std::vector<Work> run_batch(std::vector<Launch> launches, std::vector<Call> calls);
  /// Whether the group has a communicator there, or is making one.
  bool has_communicator(int device);
  /// Collective over the group: throws kDisagreement where its members call different things.
  void compare(const Call& call);
  /// Collective over the group. @param color nullopt: this rank is in no group. @return the child's
  /// group; its communicator is split from this one's, where there is one
  std::shared_ptr<NcclGroup> split(NcclGroupSpec child, std::optional<int> color, const Call& call);
  void reject(const Fingerprint& fingerprint, const base::Error& error);
  /// The group fails everywhere with that error: here at once, on a peer that waits within about a
  /// second. Any thread.
  void abort(const base::Error& error);
  void shutdown();

  // For operations.
  void wait(Operation& operation, base::Deadline deadline);
  bool is_completed(Operation& operation);
  std::exception_ptr exception(Operation& operation);

  TimePoint inspect() override;

 private:
  using Lock = std::unique_lock<std::mutex>;
  /// members: that this rank has failed, and why; members_alike: the error as it stands.
  enum class Tell { nobody, members, members_alike };

  /// What the herald has found out about a call that is late.
  struct Inquiry;
  /// A call that waits for others.
  struct Waiting {
    const void* who = nullptr;  ///< tells calls apart
    const Fingerprint& fingerprint;
    TimePoint started;
    const Queue* queue = nullptr;  ///< may be null
    bool is_of_batch = false;
  };
  /// What the herald has heard of the others.
  struct Hearing;

  std::shared_ptr<Operation> enqueue(Launch launch, Call call);
  Queue& queue(const QueueKey& key);
  MeetingPlace meeting_place(int device) const;
  Queue& make_group_queue(const QueueKey& key);
  /// Both directions, before the first message of either runs.
  Queue& make_pair_queues(const QueueKey& key);
  QueueSite queue_site(int device);
  std::shared_ptr<Meeting> meet(MeetingPlace place, int device);
  void add_split_queue(int device, std::unique_ptr<Communicator> slot);
  std::unique_ptr<Communicator> split_communicator(Lock& lock, Queue& parent,
                                                   std::optional<int> color, int key,
                                                   const Call& call);
  void await(Lock& lock, Operation& operation, Operation::Progress progress,
             base::Deadline deadline);
  /// Waits a little for anything to change.
  void pause(Lock& lock, int& looks, base::Deadline deadline);
  void advance_all();
  /// Once the others have been told, or cannot be; without the lock.
  void throw_if_failed(Lock& lock);
  void await_telling(Lock& lock);
  void fail(const base::Error& error, Tell tell);
  void end_communicators(std::vector<std::shared_ptr<Operation>> operations,
                         std::vector<Communicator> ready, std::vector<Communicator> unready);
  /// Of a call whose deadline has passed. nullopt: the herald still asks how the others are.
  std::optional<base::Error> lateness(const Waiting& waiting);
  Waiting waiting_of(const Operation& operation) const;
  void inquire(const Waiting& waiting);

  void require_own_process() const;
  Queue* group_queue();
  std::string call_key(std::uint64_t sequence, int rank) const;
  std::string hear(const std::string& key, base::Deadline deadline);
  std::optional<base::Error> difference(const Fingerprint& mine, int rank, base::Deadline deadline);
  int own_rank() const;

  // The watchdog's part.
  std::optional<base::Error> job_failure() const;
  void look_around(TimePoint now);
  void hear_peers(const Operation& oldest, TimePoint now);
  void heed(const Hearing& hearing, const Fingerprint& mine);
  void tell_of_idleness(TimePoint now);
  bool published_idleness() const;
  const Operation* oldest() const;
  /// @return when to look again at what NCCL has not taken yet
  TimePoint next_look(TimePoint now);
  void watch_ending(TimePoint now);
  /// Of all operations that are over, without the lock: by the watchdog, or by who leaves.
  void run_callbacks(Lock& lock);

  // Leaving.
  /// @return whether the device has done all that it was given
  bool drain(Lock& lock);
  void close_queues(Lock& lock);
  /// Waits for what is ended, for as long as there is hope.
  void await_ending(const std::shared_ptr<Ending>& ending);
  /// Waits for the peers to do the same. @return whether it came to that
  bool finalize(Communicator communicator, base::Deadline deadline);

  const std::shared_ptr<NcclWorld> world_;
  const NcclGroupSpec spec_;
  const RecordedGroup recorded_group_;
  const std::shared_ptr<StatusBoard> board_;
  const ForkMark fork_mark_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<QueueKey, std::unique_ptr<Queue>> queues_;
  std::exception_ptr failure_;
  std::shared_future<void> told_;                          ///< the others have been told of it
  base::Deadline telling_ends_ = base::Deadline::never();  ///< nobody waits for that any longer
  bool left_ = false;
  std::shared_ptr<Ending> ending_;  ///< of what the failed group had
  bool ending_is_slow_ = false;     ///< and that has been said
  bool watchdog_sleeps_ = true;
  std::vector<std::unique_ptr<Communicator>> lost_slots_;  ///< of splits under way, or failed
  int first_device_ = -1;
  Fingerprint last_;  ///< of the last call
  TimePoint last_call_{};
  std::optional<Status> published_;
  TimePoint next_hearing_{};
  std::shared_ptr<Hearing> hearing_;
  std::shared_ptr<Inquiry> inquiry_;
  std::uint64_t moved_ = 0;  ///< how often operations have come to the device
  std::uint64_t moved_before_ = 0;
  TimePoint quick_until_{};
};

}  // namespace dtrun::collectives::nccl
