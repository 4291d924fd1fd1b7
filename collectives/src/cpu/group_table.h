// GroupTable: what the members of a group who share memory show one another in a collective: a line
// for each, all in one place, so that looking at many members touches few pages; and the group's
// fate: its failure, told once, and who has left. It lies in the commons (the world's group), or in
// the heap of the first member on the machine. Lines are written by their member only. Members are
// group ranks; of those on other machines the lines stay empty.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>
#include <string>

#include "channel.h"
#include "post.h"

namespace dtrun::collectives::cpu {

using Offset = std::uint64_t;  ///< in a heap; 0: none

/// Of short collectives, or of long ones: each lane of collectives has a line of its own, and what
/// is not of one lane stands in the first.
struct MemberLine {
  Post posts[2];
  /// Whoever reads lines one after the other gets the next ones as well, which their writer then
  /// has to take back: what is written in every call lies apart from what is read in every call.
  std::byte apart[256];
  alignas(128) std::atomic<Turn> step{kFirstTurn - 1};  ///< the last one that lies in the stage
  std::atomic<std::uint32_t> left{0};                   ///< 1: the member has left the group
  std::atomic<Offset> stage{0};                         ///< in its heap; 0: none yet
  /// The sequence of its last collective: the call itself stands in the history in its heap.
  std::atomic<std::uint64_t> called{0};
  /// Its collectives of this lane up to this one are over: whatever they send on this machine is
  /// there.
  std::atomic<std::uint64_t> over{0};
  /// From this call of the lane on its calls have failed: the buffers that it has shown for them
  /// may have been overwritten. 0: none has.
  std::atomic<std::uint64_t> withdrawn_from{0};
  /// Of the call of this lane in which it has waited for long; a digest of all that must be equal.
  std::atomic<std::uint64_t> waits_in{0};
  std::atomic<std::uint64_t> waits_digest{0};
  alignas(128) std::byte apart_from_next[384];
};
static_assert(sizeof(MemberLine) == 1024);

struct alignas(128) GroupTable {
  /// Another one: the memory has been used anew, after all have departed.
  std::atomic<std::uint64_t> generation{0};
  std::atomic<std::uint32_t> departed{0};  ///< members that look at nothing of the group's any more
  std::atomic<std::uint32_t> left{0};      ///< lines that say so
  std::atomic<std::uint32_t> long_waits{0};  ///< how often a line's waits_in was written
  std::atomic<std::uint32_t> told{0};        ///< of the failure: 0 no, 1 being written, 2 there
  /// How many posts there were in all turns of a lane. Who brings a turn's last one wakes the
  /// sleepers.
  struct alignas(128) Posts {
    std::atomic<std::uint64_t> count{0};
  };
  Posts posts[kCollectiveLanes];
  alignas(128) std::uint32_t members = 0;
  std::uint32_t failure_bytes = 0;
  char failure[4472] = {};

  /// The members' lines of a lane, one after the other.
  MemberLine* lines(Lane lane) {
    return reinterpret_cast<MemberLine*>(this + 1) + static_cast<std::size_t>(lane) * members;
  }
  MemberLine& line(int member) { return lines(Lane::prompt)[static_cast<std::size_t>(member)]; }

  static std::size_t bytes(std::size_t members) {
    return sizeof(GroupTable) + kCollectiveLanes * members * sizeof(MemberLine);
  }
  static GroupTable* make_at(std::byte* memory, std::size_t members, std::uint64_t generation) {
    // Before anything else: who compares it never takes the next group's numbers for its own.
    reinterpret_cast<GroupTable*>(memory)->generation.store(generation, std::memory_order_seq_cst);
    auto* table = reinterpret_cast<GroupTable*>(memory);
    table->departed.store(0, std::memory_order_seq_cst);
    table->left.store(0, std::memory_order_relaxed);
    table->long_waits.store(0, std::memory_order_relaxed);
    table->told.store(0, std::memory_order_relaxed);
    for (Posts& posts : table->posts) posts.count.store(0, std::memory_order_relaxed);
    table->members = static_cast<std::uint32_t>(members);
    for (std::size_t line = 0; line < kCollectiveLanes * members; ++line)
      new (&table->lines(Lane::prompt)[line]) MemberLine();
    return table;
  }

  /// The first to tell is heard. @return whether this was it
  bool tell_failure(const std::string& text);
  bool has_failed() const { return told.load(std::memory_order_seq_cst) != 0; }
  /// Empty where who began to tell it has died over that.
  std::string failure_text();
};
static_assert(sizeof(GroupTable) % 512 == 256);

}  // namespace dtrun::collectives::cpu
