// The job page: one memfd per node and job, made by the launcher's guard and mapped by every rank
// on the node. It carries an abort word that wakes every sleeper, the first cause of failure
// (written once), and for each local rank what it is doing and its last operations. It stays
// readable after all ranks are dead. The layout is frozen: magic, version and size come first;
// fields are only added at the end of a struct's reserve. Written by the guard (cause, abort, state
// of dead ranks) and by each rank (its own slot only). Thread-safe: all shared words are atomics; a
// slot has one writer at a time (its rank, under the rank's lock).
// A rank can write anything anywhere in it, also by a stray pointer, and all others must survive
// that: the memory's size is sealed, sizes and offsets are read once and kept, and texts are copied
// before they are used.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

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
  std::uint32_t reserved = 0;
};

inline constexpr std::size_t kOperationRing = 16;

struct alignas(128) RankSlot {
  std::atomic<std::uint32_t> state{0};  ///< RankState
  std::atomic<std::int32_t> pid{0};
  std::atomic<std::int32_t> global_rank{-1};
  std::atomic<std::int32_t> victim_of{
      -1};  ///< global rank whose failure or absence this rank reported; -1: none
  std::atomic<std::uint64_t> operations{
      0};  ///< how many were begun; the newest is ring[(n-1) % kOperationRing]
  Operation ring[kOperationRing];
};

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
  std::uint32_t reserved[5];
  Cause cause;
};

class JobPage {
 public:
  static constexpr std::uint64_t kMagic = 0x656761506e757274;  // "trunPage"
  static constexpr std::uint32_t kVersion = 1;

  /// Guard side. @throws Error kSystem
  static JobPage create(int local_ranks);
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
  int slot_count() const { return slot_count_; }
  int fd() const { return memory_.fd(); }
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
  JobPage(base::SharedMemory memory, int slot_count, std::size_t slots_offset)
      : memory_(std::move(memory)), slot_count_(slot_count), slots_offset_(slots_offset) {}
  base::SharedMemory memory_;
  int slot_count_;
  std::size_t slots_offset_;
};

}  // namespace dtrun::rendezvous
