// AdapterBackend: a Backend over a MessageLibrary. What the library has no word for is done here:
// all ranks compare their calls' fingerprints before a collective begins, a failure of one rank
// fails the group on all, and asynchronous calls run on threads of the group's own. Collectives run
// one after the other; messages run beside them.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "adapter/message_library.h"
#include "adapter/operation.h"
#include "adapter/worker_threads.h"
#include "disagreement.h"
#include "fork_mark.h"
#include "membership.h"
#include "rank_record.h"

namespace dtrun::collectives::adapter {

/// What every two ranks of a group exchange before a collective of an adapter.
struct CallCard {
  static constexpr std::uint64_t kCall = 0x6c6c6143;      // "Call"
  static constexpr std::uint64_t kFarewell = 0x65796279;  // "ybye": the sender leaves the group

  std::uint64_t kind = kCall;
  std::uint64_t bytes_to_reader = 0;
  std::uint64_t bytes_from_reader = 0;  ///< that the writer expects
  Fingerprint fingerprint;
};
static_assert(sizeof(CallCard) == 88);
static_assert(std::is_trivially_copyable_v<CallCard>);

/// What stands before a message's payload.
struct MessageCard {
  std::uint64_t bytes = 0;
  std::uint32_t number = 0;  ///< the payload's tag: of the sender's messages to the reader
  std::uint32_t reserved = 0;
  Fingerprint fingerprint;
};
static_assert(sizeof(MessageCard) == 80);

class AdapterBackend : public Backend {
 public:
  /// The group's members have met.
  /// @param options of this group; its store is for this group alone @param members in rank order
  AdapterBackend(std::unique_ptr<MessageLibrary> library, GroupOptions options,
                 std::vector<Card> members);
  ~AdapterBackend() override;

  std::string name() const override { return library_->name(); }
  tensors::DeviceType device_type() const override { return tensors::DeviceType::cpu; }
  int rank() const override { return options_.rank; }
  int size() const override { return static_cast<int>(members_.size()); }

  Work start(Collective collective) override;
  Work start(Message message) override;

  std::unique_ptr<Backend> split(const std::vector<int>& ranks, int list_index,
                                 const std::string& name, Call call) override;
  void reject(const Fingerprint& fingerprint, const base::Error& error) override;
  void abort(const base::Error& error) override;
  std::vector<int> ended_ranks() override;
  TransportCounters counters() const override;
  void shutdown() override;

 private:
  /// Blocks until the operation is done. @return the source of a receive, else -1
  using Body = std::function<int(base::Deadline)>;
  using Operation = std::shared_ptr<AdapterOperation>;
  /// A list of pieces, one per rank; empty: nothing to or from anybody.
  using Pieces = std::vector<Buffer>;

  // Collectives. Root and reduce op stand in the call.
  Work broadcast(Buffer buffer, Call call);
  Work all_reduce(Buffer input, Buffer output, Call call);
  /// @param output at the root
  Work reduce(Buffer input, Buffer output, Call call);
  Work reduce_scatter(Buffer output, Pieces inputs, Call call);
  Work collective(Call call, Pieces inputs, Pieces outputs, Body body);
  Work exchange_pieces(Call call, Pieces inputs, Pieces outputs);
  void run_in_order(std::function<void()> job, const Operation& operation);
  void drain();
  void agree(const Fingerprint& fingerprint, const Pieces& inputs, const Pieces& outputs,
             base::Deadline deadline);
  void transfer(const Pieces& inputs, const Pieces& outputs, base::Deadline deadline);

  // Messages.
  Work send(Message given);
  Work receive(Message given);
  /// @param state what they need besides the caller's buffers @param start posts what can be posted
  /// at once, so that calls keep their order
  Work message(Call call, std::shared_ptr<void> state, std::size_t bytes,
               const std::function<void()>& start, Body finish);
  void require_peer(int peer, std::uint32_t tag) const;

  // Any operation.
  void perform(const Operation& operation, std::size_t bytes, const Body& body);
  void track(const Operation& operation);
  std::exception_ptr failure();
  std::exception_ptr fail(const GroupFailure& failure);
  /// What an exception of the library's means.
  GroupFailure explain(const AdapterOperation& operation, const std::exception_ptr& error);
  GroupFailure disagreement(const Disagreement& found) const;
  GroupFailure late(const AdapterOperation& operation, const std::vector<int>& missing) const;
  GroupFailure lost(const AdapterOperation& operation, int peer);
  GroupFailure left(int peer) const;
  int global_rank(int rank) const;
  void wait_for_operations(base::Deadline deadline);
  void say_farewell();
  void require_own_process() const;
  void narrow_mean(const Buffer& sums, const Buffer& halves) const;

  const GroupOptions options_;
  const RecordedGroup recorded_group_;
  const std::vector<Card> members_;
  const std::shared_ptr<RankRecord> record_;
  std::unique_ptr<MessageLibrary> library_;
  const ForkMark fork_mark_;
  std::atomic<std::uint64_t> bytes_sent_{0};
  std::atomic<std::uint64_t> bytes_received_{0};
  std::vector<std::uint32_t> messages_sent_;  ///< to each rank

  std::mutex mutex_;
  std::exception_ptr failure_;                 ///< the first
  std::deque<std::function<void()>> waiting_;  ///< collectives behind the one that runs
  bool running_ = false;                       ///< a collective, on whichever thread
  std::vector<std::weak_ptr<AdapterOperation>> in_flight_;
  bool shut_down_ = false;
  std::set<int> lost_;     ///< peers whose end the library has told
  WorkerThreads threads_;  ///< last: its jobs use the rest
};

/// Collective over the members of a new group that are to meet through the store.
std::vector<Card> meet_members(const GroupOptions& options, base::Deadline deadline);

}  // namespace dtrun::collectives::adapter
