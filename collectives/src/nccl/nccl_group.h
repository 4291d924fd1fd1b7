// NcclGroup: the ranks of one group, their queues and their common fate. It launches operations,
// waits for them, and fails as a whole: on a failed call, an asynchronous error, a deadline, a
// peer's word or the job's end its communicators are aborted, once each, by the watchdog, and every
// later call throws the first error. Thread-safe; NCCL is called by one thread at a time.
#pragma once

#include <condition_variable>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "device_api.h"
#include "dtrun/collectives/process_group.h"
#include "fork_mark.h"
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

  std::shared_ptr<Operation> enqueue(Launch launch, Call call);
  Queue& queue(const QueueKey& key);
  void add_split_queue(int device, std::unique_ptr<Communicator> slot);
  std::unique_ptr<Communicator> split_communicator(Lock& lock, Queue& parent,
                                                   std::optional<int> color, int key,
                                                   const Call& call);
  void await(Lock& lock, Operation& operation, Operation::Progress progress,
             base::Deadline deadline);
  /// Waits a little for anything to change.
  void pause(Lock& lock, int& looks, base::Deadline deadline);
  void advance_all();
  void throw_if_failed() const;
  void fail(const base::Error& error, Tell tell);
  base::Error timed_out(const Operation& operation);

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
  void tell_of_idleness(TimePoint now);
  bool published_idleness() const;
  const Operation* oldest() const;
  void bury_doomed(Lock& lock);
  /// Of all operations that are over, without the lock: by the watchdog, or by who leaves.
  void run_callbacks(Lock& lock);

  // Leaving.
  /// @return whether the device has done all that it was given
  bool drain(Lock& lock);
  void close_queues(Lock& lock);
  /// Waits for the peers to do the same. @return whether it came to that
  bool finalize(Communicator communicator, base::Deadline deadline);

  const std::shared_ptr<NcclWorld> world_;
  const NcclGroupSpec spec_;
  const RecordedGroup recorded_group_;
  StatusBoard board_;
  const ForkMark fork_mark_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<QueueKey, std::unique_ptr<Queue>> queues_;
  std::exception_ptr failure_;
  bool left_ = false;
  std::vector<Communicator> doomed_;  ///< to be aborted by the watchdog
  bool watchdog_sleeps_ = true;
  std::vector<std::unique_ptr<Communicator>> lost_slots_;
  int first_device_ = -1;
  Fingerprint last_;  ///< of the last call
  TimePoint last_call_{};
  std::optional<Status> published_;
  TimePoint next_hearing_{};
};

}  // namespace dtrun::collectives::nccl
