// The job page: one memfd per node and job, made by the launcher's guard and mapped by every rank
// on the node. It carries an abort word that wakes every sleeper, the first cause of failure
// (written once), and for each local rank what it is doing and its last operations: a short ring in
// its slot, and a history of 256, or of as many as a trace keeps, behind the slots, which is memory
// only once the rank has joined. It stays readable after all ranks are dead. The layout is frozen:
// magic, version and size come first; fields are only added at the end of a struct's reserve.
// Written by the guard (cause, abort, state of dead ranks) and by each rank (its own slot only).
// Thread-safe: all shared words are atomics; a slot has one writer at a time (its rank, under the
// rank's lock). A rank can write anything anywhere in it, also by a stray pointer, and all others
// must survive that: the memory's size is sealed, sizes and offsets are read once and kept, and
// texts are copied before they are used.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dtrun/base/shared_memory.h"

namespace dtrun::rendezvous {

enum class RankState : std::uint32_t {
  kNone,
  kSpawned,
  kInit,
  kRunning,
  kInCollective,
  kLeft,
  kExited
};

/// What a rank is doing inside one collective; also an entry of its ring of last operations.
struct Operation {
  char name[24] = {};           ///< "all_reduce", NUL-terminated
  char group[24] = {};          ///< group's name
  std::uint64_t sequence = 0;   ///< the group's count of collectives
  std::int64_t started_ns = 0;  ///< CLOCK_MONOTONIC; 0: none
  std::int64_t ended_ns = 0;    ///< 0: not yet
  std::uint64_t bytes = 0;
  std::int32_t waiting_for = -1;  ///< global rank; -1: nobody in particular
  std::uint32_t failed = 0;       ///< 1: it has ended, with an error
};

inline constexpr std::size_t kOperationRing = 16;

/// An entry of a rank's history: an operation, what its call said, and who takes part. Texts are
/// NUL-terminated.
struct HistoryEntry {
  Operation operation;
  char call_site[40] = {};  ///< "train.cc:212"
  char dtype[8] = {};
  char reduce_op[8] = {};  ///< empty where nothing is reduced
  std::uint64_t elements = 0;
  std::int32_t root = -1;  ///< group rank; -1: none
  std::int32_t group_rank = 0;
  std::int32_t group_size = 0;
  /// Global ranks of the members are first_rank, first_rank + rank_stride, ...; stride 0: they are
  /// not in such an order.
  std::int32_t first_rank = 0;
  std::int32_t rank_stride = 0;
  std::uint32_t members_hash = 0;  ///< tells groups of one name apart
  std::uint32_t tag = 0;           ///< of a message
  std::uint32_t reserved[3] = {};
};

inline constexpr std::size_t kHistoryLength = 256;

/// How the ranks of a page write their histories.
struct HistoryPlan {
  enum class Times : std::uint32_t {
    coarse,  ///< some milliseconds late
    exact,   ///< to the nanosecond, at the price of two looks at the clock for each operation
  };
  std::size_t length = kHistoryLength;  ///< entries of each rank
  Times times = Times::coarse;
};

struct alignas(128) RankSlot {
  std::atomic<std::uint32_t> state{0};  ///< RankState
  std::atomic<std::int32_t> pid{0};
  std::atomic<std::int32_t> global_rank{-1};
  std::atomic<std::int32_t> victim_of{
      -1};  ///< global rank whose failure or absence this rank reported; -1: none
  std::atomic<std::uint64_t> operations{
      0};  ///< how many were begun; the newest is ring[(n-1) % kOperationRing]
  Operation ring[kOperationRing];
  /// How many operations its history was told of; the newest is [(n-1) % length]. 0: there is none.
  std::atomic<std::uint64_t> recorded{0};
  /// Of the rank's tensors in all operations. 0 from a rank that is older than this number.
  std::atomic<std::uint64_t> bytes{0};
  /// The number of an operation that its entries tell as over, because it is short, and that is
  /// not over; 0: there is none.
  std::atomic<std::uint64_t> passing{0};
  /// Since when a rank of another node waits for this one in an operation to which it has not come:
  /// CLOCK_MONOTONIC; 0: none does. Then which rank, and in what. Texts are NUL-terminated.
  std::atomic<std::int64_t> awaited_since_ns{0};
  std::atomic<std::uint64_t> awaited_sequence{0};
  std::atomic<std::int32_t> awaited_by{-1};
  struct AwaitedCall {
    char name[20] = {};
    char group[24] = {};
  } awaited_call;
};

/// kInCollective also in a short operation, in which the slot's own word stays as it was.
RankState state_of(const RankSlot& slot);

/// In what a rank of another node waits for this one.
struct AwaitedOperation {
  int by = -1;  ///< global rank
  std::string name;
  std::string group;
  std::uint64_t sequence = 0;
  std::int64_t since_ns = 0;  ///< CLOCK_MONOTONIC
};
/// nullopt: in nothing, as far as the rank has heard. Texts are printable.
std::optional<AwaitedOperation> awaited_in(const RankSlot& slot);

/// The newest operation: "all_reduce #41 of group 'world'"; empty: none was begun. Short and
/// without control characters, whatever the rank has written there.
std::string describe_newest_operation(const RankSlot& slot);

/// The first cause of failure. Valid once JobPageHeader::cause_state is 2.
struct Cause {
  std::int32_t global_rank = -1;
  std::int32_t local_rank = -1;
  std::int32_t pid = 0;
  std::int32_t exit_code = 0;  ///< 0 when a signal ended it
  std::int32_t signal = 0;
  std::int32_t state_at_death = 0;  ///< RankState
  char text[256] = {};
};

struct alignas(128) JobPageHeader {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t slot_count;
  std::uint64_t size;
  std::uint64_t slots_offset;
  alignas(128) std::atomic<std::uint32_t> abort;  ///< futex word: 0 running, 1 aborting
  std::atomic<std::uint32_t> cause_state;         ///< 0 none, 1 being written, 2 there
  std::atomic<std::uint32_t> ranks_in_init;       ///< futex word
  std::uint32_t history_length;  ///< entries of each rank; 0: a dtrun that had no histories
  std::uint64_t history_offset;  ///< of the first rank's
  std::uint32_t history_times;   ///< HistoryPlan::Times
  std::uint32_t reserved[1];
  Cause cause;
};

class JobPage {
 public:
  static constexpr std::uint64_t kMagic = 0x656761506e757274;  // "trunPage"
  static constexpr std::uint32_t kVersion = 1;

  /// Guard side. @throws Error kSystem
  static JobPage create(int local_ranks, const HistoryPlan& plan = {});
  /// Worker side: duplicates the fd. It may be another file by now: a program between the launcher
  /// and this one may have closed it, and the number may have been reused.
  /// @param id of the expected page, as id() returns it; empty: any
  /// @throws Error kProtocol when it is no job page of this version, or another one
  static JobPage open(int fd, std::string_view id = {});

  JobPageHeader& header() const;
  RankSlot& slot(int local_rank) const;
  /// The number of the slot that the guard has given to this rank, if it has: LOCAL_RANK is 0 for
  /// all with --virtual-local-rank.
  std::optional<int> slot_of(int global_rank) const;
  int slot_count() const { return layout_.slot_count; }
  /// Takes the memory of this rank's history, which only the rank itself may write to from then on.
  /// Empty: the launcher has made none. @throws Error kSystem
  std::span<HistoryEntry> open_history(int local_rank) const;
  /// The rank's last operations, oldest first, whatever it has written there: texts are printable.
  /// One that is being written at this moment may be mixed up with the one before it.
  std::vector<HistoryEntry> history(int local_rank, std::size_t most = kHistoryLength) const;
  /// Of the histories.
  HistoryPlan::Times times() const {
    return static_cast<HistoryPlan::Times>(header().history_times);
  }
  int fd() const { return memory_.fd(); }
  /// Who only looks keeps no descriptor: whoever has one counts as one of the job's processes.
  void close_file() { memory_.close_file(); }
  /// Device and inode, which no other file has for as long as this one is open.
  std::string id() const;

  /// Writes the cause if there is none yet, sets the abort word and wakes all its sleepers.
  /// Returns whether this call's cause became the first.
  bool abort(const Cause& cause);
  bool aborted() const { return header().abort.load(std::memory_order_acquire) != 0; }
  /// "rank 2 (pid 812) was killed by SIGKILL in all_reduce #41 of group 'world'"; empty when there
  /// is none.
  std::string describe_cause() const;

 private:
  /// Where things lie, read once.
  struct Layout {
    int slot_count = 0;
    std::size_t slots_offset = 0;
    std::size_t history_length = 0;
    std::size_t history_offset = 0;
  };
  JobPage(base::SharedMemory memory, const Layout& layout)
      : memory_(std::move(memory)), layout_(layout) {}
  std::size_t history_offset(int local_rank) const;

  base::SharedMemory memory_;
  Layout layout_;
};

}  // namespace dtrun::rendezvous
