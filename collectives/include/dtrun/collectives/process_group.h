// ProcessGroup: some of the job's ranks, and the collectives among them. A handle: copies share the
// group. Every rank of the group calls the same collectives in the same order. Calls block; {.async
// = true} returns a Work in flight. One thread at a time per group; different groups may be used
// from different threads. A group has one backend per device type; the tensors' device chooses it,
// and all tensors of a call are on one device type. Errors: kInvalidArgument (this rank's argument
// is wrong, a timeout of zero too; its peers are told and fail too), kUnavailable (the backend has
// no such collective or dtype), kDisagreement, kPeerFailed, kTimeout, kAborted (after abort() on
// any rank, or after shutdown()). After any of these but a wrong argument of a message, which
// concerns nobody else yet, the group is poisoned: later calls throw the first error.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dtrun/base/call_site.h"
#include "dtrun/base/deadline.h"
#include "dtrun/collectives/backend.h"
#include "dtrun/collectives/call_counters.h"
#include "dtrun/collectives/cost_table.h"
#include "dtrun/collectives/planned_call.h"
#include "dtrun/collectives/reduce_op.h"
#include "dtrun/collectives/work.h"
#include "dtrun/rendezvous/job_page.h"
#include "dtrun/rendezvous/store.h"
#include "dtrun/tensor/host_allocator.h"
#include "dtrun/tensor/tensor.h"

namespace dtrun::collectives {

using tensors::LocalTensor;

struct CallOptions {
  bool async = false;
  /// Default: the group's.
  std::optional<base::Deadline::Duration> timeout = std::nullopt;
  /// Of ReduceOp::premul_sum, and of no other: what this rank's elements are multiplied by, rounded
  /// to their dtype. The ranks' factors may differ, as in NCCL. The input stays as it is.
  std::optional<double> factor = std::nullopt;
};

/// What a subgroup has otherwise than the group it is made from.
struct SplitOptions {
  /// As GroupOptions::backend; default: the parent's.
  std::optional<std::string> backend = std::nullopt;
  std::optional<base::Deadline::Duration> timeout = std::nullopt;
};

/// Who a shrunk group lacks.
struct ShrinkOptions {
  /// Group ranks, which do not call; all others must. Empty: those that have ended, and those that
  /// do not come in time.
  std::vector<int> excluded_ranks = {};
  /// For the whole call: three quarters for the ranks to come, the rest, or a second where that is
  /// more, to make the group. Default: 30 s, or the group's where that is less.
  std::optional<base::Deadline::Duration> timeout = std::nullopt;
  /// Default: "world-shrink-0".
  std::optional<std::string> name = std::nullopt;
};

/// One message of batch_isend_irecv().
struct P2POp {
  enum class Kind { send, receive };
  Kind kind;
  LocalTensor tensor;
  int peer = 0;  ///< group rank; -1 for a receive from any rank
  std::uint32_t tag = 0;
};

struct MonitoredBarrierOptions {
  std::optional<base::Deadline::Duration> timeout = std::nullopt;
  /// Rank 0 waits for all ranks and names every one that is missing, instead of the first.
  bool wait_all_ranks = false;
};

class RankRecord;
struct AgreedExchange;

/// How the cpu backend reaches peers. automatic: shared memory where it can be had, else TCP.
enum class Transport { automatic, tcp };

/// Whether a large message between two ranks of a machine is read out of the sender's memory by one
/// copy: where the kernel allows that, or never.
enum class SingleCopy { automatic, never };

/// Where the group's ranks run and how they find each other. Made by runtime, or by a test.
struct GroupOptions {
  std::shared_ptr<rendezvous::Store> store;  ///< already prefixed for this group's life
  int rank = 0;                              ///< in this group
  std::vector<int> global_ranks;             ///< of the members, in group order
  std::string name = "world";
  /// One name ("cpu", "gloo", "mpi", "nccl", "staged", or one of register_backend()), or one per
  /// device: "cpu:gloo,cuda:nccl".
  std::string backend = "cpu";
  base::Deadline::Duration timeout = std::chrono::minutes(30);
  std::shared_ptr<rendezvous::JobPage> job_page;  ///< null: none, peers are watched by pidfd
  int local_rank = 0;                             ///< this rank's slot in the job page
  /// Address that peers on other hosts reach this rank at; empty: not needed or loopback.
  std::string address = "127.0.0.1";
  /// tcp: also towards peers on this machine.
  Transport transport = Transport::automatic;
  SingleCopy single_copy = SingleCopy::automatic;
  /// TCP connections from this rank to a peer that share a large message; 0: as many as the round
  /// trip wants.
  int connections_per_peer = 0;
  static constexpr int kMostConnectionsPerPeer = 16;
  /// Which ways collectives go, and what links cost. The same on all ranks: they compare it.
  CostTable costs = {};
  /// Ranks with different texts share no memory, as on two machines: for simulations of several.
  std::string machine;
  /// Where the rank's backends record what they do; null: the group makes one, which groups that
  /// are made of it share.
  std::shared_ptr<RankRecord> record = nullptr;
  /// For the members to come to one another; nullopt: they have the timeout.
  std::optional<base::Deadline> join_by = std::nullopt;
  base::Deadline joining_deadline() const {
    return join_by.value_or(base::Deadline::after(timeout));
  }
};

class GroupCore;

class ProcessGroup {
 public:
  ProcessGroup() = default;  ///< no group at all: invalid, without a name
  /// Collective over the members: returns when all have joined. @throws Error kTimeout naming who
  /// is missing
  static ProcessGroup create(GroupOptions options);
  /// For whoever has made the backends: the library, and tests.
  explicit ProcessGroup(std::shared_ptr<GroupCore> core) : core_(std::move(core)) {}

  /// Over a backend that is there already, dtrun's or another. Not collective. Only rank,
  /// global_ranks, name and timeout of the options are looked at. @throws Error kInvalidArgument
  static ProcessGroup over(GroupOptions options, std::unique_ptr<Backend> backend);

  /// False: no group at all, or one that this rank is no member of, of which the name is known.
  bool valid() const { return core_ != nullptr; }
  int rank() const;
  int size() const;
  const std::string& name() const;  ///< also of an invalid group
  const std::vector<int>& global_ranks() const;
  /// Of calls that name none.
  base::Deadline::Duration timeout() const;
  /// For this rank's calls from now on, and for groups that are split off from now on; calls in
  /// flight keep theirs. Thread-safe. @throws Error kInvalidArgument unless it is more than nothing
  void set_timeout(base::Deadline::Duration timeout) const;
  /// "cpu", or "cpu:cpu,cuda:nccl" where there are two.
  std::string backend_name() const;
  /// Whether tensors of that device type are served.
  bool serves(tensors::DeviceType type) const;
  /// "ProcessGroup(name=world, backend=cpu, rank=0, ranks=[0, 1, 2, 3])"; also of an invalid group:
  /// "ProcessGroup(name=tp-1, this rank is no member)".
  std::string to_string() const;

  using Site = base::CallSite;
  // In place on `tensor` where there is one tensor. Roots are group ranks. Tensors may be
  // non-contiguous. Where a call has inputs and outputs, contiguous ones may not overlap in memory,
  // except that this rank's own part may be one tensor on both sides: Error kInvalidArgument on
  // this rank, and kPeerFailed on the others.
  Work broadcast(const LocalTensor& tensor, int source, const CallOptions& options = {},
                 Site site = Site::current()) const;
  Work all_reduce(const LocalTensor& tensor, ReduceOp op = ReduceOp::sum,
                  const CallOptions& options = {}, Site site = Site::current()) const;
  /// The same with a result of its own: it costs a copy less than to all_reduce a copy. The peers
  /// may call all_reduce. @param output of the input's shape; the same tensor or apart from it in
  /// memory
  Work all_reduce_into_tensor(const LocalTensor& output, const LocalTensor& input,
                              ReduceOp op = ReduceOp::sum, const CallOptions& options = {},
                              Site site = Site::current()) const;
  /// In place at `destination`; the others' tensors stay as they are.
  Work reduce(const LocalTensor& tensor, int destination, ReduceOp op = ReduceOp::sum,
              const CallOptions& options = {}, Site site = Site::current()) const;
  /// outputs[r] receives rank r's tensor: any shapes, dtype of the input, as long as both sides
  /// agree per rank.
  Work all_gather(const std::vector<LocalTensor>& outputs, const LocalTensor& input,
                  const CallOptions& options = {}, Site site = Site::current()) const;
  /// outputs: at `destination` only, empty elsewhere.
  Work gather(const LocalTensor& input, const std::vector<LocalTensor>& outputs, int destination,
              const CallOptions& options = {}, Site site = Site::current()) const;
  /// inputs: at `source` only, empty elsewhere.
  Work scatter(const LocalTensor& output, const std::vector<LocalTensor>& inputs, int source,
               const CallOptions& options = {}, Site site = Site::current()) const;
  Work reduce_scatter(const LocalTensor& output, const std::vector<LocalTensor>& inputs,
                      ReduceOp op = ReduceOp::sum, const CallOptions& options = {},
                      Site site = Site::current()) const;
  Work all_to_all(const std::vector<LocalTensor>& outputs, const std::vector<LocalTensor>& inputs,
                  const CallOptions& options = {}, Site site = Site::current()) const;
  /// An all_to_all of which all ranks know all sizes (agreed_exchange.h).
  Work all_to_all_agreed(const AgreedExchange& exchange, const CallOptions& options = {},
                         Site site = Site::current()) const;
  /// The outputs of all_gather as one tensor: rank r's part is the r-th of size() equal parts along
  /// dim 0, or, where `output` has one dim more than `input`, output[r].
  Work all_gather_into_tensor(const LocalTensor& output, const LocalTensor& input,
                              const CallOptions& options = {}, Site site = Site::current()) const;
  /// The inputs of reduce_scatter as one tensor, laid out as all_gather_into_tensor's output.
  Work reduce_scatter_tensor(const LocalTensor& output, const LocalTensor& input,
                             ReduceOp op = ReduceOp::sum, const CallOptions& options = {},
                             Site site = Site::current()) const;
  /// Parts of dim 0, in rank order: split_sizes[r] rows to (from) rank r. Empty: equal parts.
  Work all_to_all_single(const LocalTensor& output, const LocalTensor& input,
                         const std::vector<std::int64_t>& output_split_sizes = {},
                         const std::vector<std::int64_t>& input_split_sizes = {},
                         const CallOptions& options = {}, Site site = Site::current()) const;
  Work barrier(const CallOptions& options = {}, Site site = Site::current()) const;
  /// A barrier that says who did not come: rank 0 hears from every rank, then lets all go. The
  /// others wait for rank 0's verdict twice as long. @throws Error kTimeout naming the missing
  /// ranks, on rank 0; the others are told. kUnavailable in a group without a backend for the cpu
  void monitored_barrier(MonitoredBarrierOptions options = {}, Site site = Site::current()) const;

  // Messages between two ranks, which are not the same. Tags up to kLastTag.
  static constexpr std::uint32_t kLastTag = 0xfffffffe;
  void send(const LocalTensor& tensor, int destination, std::uint32_t tag = 0,
            const CallOptions& options = {}, Site site = Site::current()) const;
  /// @param source -1: any rank. @return the sender's group rank
  int recv(const LocalTensor& tensor, int source, std::uint32_t tag = 0,
           const CallOptions& options = {}, Site site = Site::current()) const;
  Work isend(const LocalTensor& tensor, int destination, std::uint32_t tag = 0,
             CallOptions options = {}, Site site = Site::current()) const;
  Work irecv(const LocalTensor& tensor, int source, std::uint32_t tag = 0, CallOptions options = {},
             Site site = Site::current()) const;
  /// Starts all of them; their order within the batch does not matter. One Work per message, in the
  /// order of `operations`.
  std::vector<Work> batch_isend_irecv(const std::vector<P2POp>& operations,
                                      Site site = Site::current()) const;

  /// Collective over the whole group, every member passing the same lists: one new group per list;
  /// returns the one that this rank is in, an invalid one, which knows the name, where it is in
  /// none. Lists hold group ranks and must not overlap. With another backend the new group's
  /// members meet in the store.
  ProcessGroup split(const std::vector<std::vector<int>>& rank_lists, const std::string& name,
                     SplitOptions options = {}, Site site = Site::current()) const;
  /// As split, and what an earlier call with the same lists has made is given again, under the name
  /// that it got then.
  ProcessGroup shared_split(const std::vector<std::vector<int>>& rank_lists,
                            const std::string& name, Site site = Site::current()) const;
  /// The group of those ranks of this one, in the order of the list: made by its members alone,
  /// who meet in the store, on their first call; the same one afterwards. A list of all ranks in
  /// their order gives this group. @throws Error kInvalidArgument for a list that is empty, has a
  /// rank twice or lacks this one
  ProcessGroup subgroup(const std::vector<int>& ranks, const std::string& name,
                        Site site = Site::current()) const;

  /// For a caller that finds a collective's argument wrong before the group can see it: tells the
  /// members that this rank's call of that kind fails, so that none waits for it, and throws the
  /// error.
  [[noreturn]] void refuse(OpKind kind, const base::Error& error,
                           Site site = Site::current()) const;

  /// Collective over those that are left of a group in which ranks have died, or which was aborted
  /// or has failed otherwise: a new group of them, in their order, over the same kind of backend.
  /// They agree in the store, which must have outlived the dead. A rank that is alive and comes too
  /// late is left out, too, and told so. It ends within its timeout, or a second later, whoever
  /// dies meanwhile, as far as the library of the backend keeps to the time that it is given and
  /// the store answers. Where it throws it does so on all that came, but for kAborted, and may be
  /// called again. What is in flight in this group goes on: abort() it first. @throws Error
  /// kTimeout or kPeerFailed naming who did not come, or ended before the new group was there;
  /// kDisagreement about the excluded; kAborted on a rank that the others went on without;
  /// kInvalidArgument
  ProcessGroup shrink(ShrinkOptions options = {}) const;

  /// Ends the group on all its ranks: the calls in flight throw Error kAborted, which names this
  /// rank and the reason, and so does every later call, on the peers as soon as they hear of it.
  /// From any thread, also while others wait in the group; it waits for nobody. A second call, and
  /// one in a group that has failed or was left, changes nothing. Groups that were split from it,
  /// or it from, go on. @param reason may be empty
  void abort(const std::string& reason = "") const;

  TransportCounters counters() const;
  /// Bytes that this rank would send in such a call of tensors on the CPU, in ordinary memory; then
  /// counters() count as many more. Between machines with what it passes on of others' bytes.
  /// nullopt: the backend cannot tell. Not collective. Thread-safe. @throws Error kInvalidArgument:
  /// its lists are not those of its kind, or this rank is no member
  std::optional<std::int64_t> bytes_to_send(const PlannedCall& call) const;
  /// This rank's calls of this group since it was made, by kind; those of groups that were
  /// split off are theirs. Not collective. Thread-safe.
  CallCounters call_counters() const;
  /// Which of this rank's calls are timed from now on, and in groups that are split off from now
  /// on. At first all, where the environment has DTRUN_TIME_CALLS=all. Thread-safe.
  void set_call_timing(CallTiming timing) const;
  /// A number for each rank of the group, the same on all ranks: equal ones share memory, as the
  /// cpu backend knows. Empty: not known. Not collective.
  std::vector<int> machines() const;
  /// The group's, that of its parent.
  const CostTable& cost_table() const;
  /// Memory for tensors that the group's ranks on this machine read where they lie: their
  /// collectives of more than 16 KiB, whose sizes all ranks know, go without a copy into shared
  /// memory and out of it. It serves all groups that were split from the same one, and may outlive
  /// them. For a tensors::HostAllocatorScope. Not collective. Thread-safe.
  /// @throws Error kUnavailable where the backend for the cpu is not dtrun's own; kSystem where
  /// limits of memory, addresses or file sizes forbid it
  std::shared_ptr<tensors::HostAllocator> shared_memory() const;
  /// Leaves the group: flushes sends, tells the peers. Idempotent. Destruction does the same.
  void shutdown() const;

  /// Handles of the same group.
  friend bool operator==(const ProcessGroup&, const ProcessGroup&) = default;

 private:
  /// @throws Error kUsage where this rank is no member
  GroupCore& core() const;

  std::shared_ptr<GroupCore> core_;
  std::string stranger_to_;  ///< the name of the group that this rank is no member of
};

}  // namespace dtrun::collectives
