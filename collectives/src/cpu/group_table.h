// GroupTable: what the members of a group who share memory show one another in a collective: a line
// and, where all of them share memory, a ring of posts for each, all in one place, so that looking
// at many members touches few pages; and the group's fate: its failure, told once, and who has
// left. It lies in the commons (the world's group), or in the heap of the first member on the
// machine. Lines are written by their member only. Members are group ranks; of those on other
// machines the lines stay empty.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "channel.h"
#include "post.h"

namespace dtrun::collectives::cpu {

using Offset = std::uint64_t;  ///< in a heap; 0: none

/// Of short collectives, or of long ones: each lane of collectives has a line of its own, and what
/// is not of one lane stands in the first.
struct MemberLine {
  alignas(128) std::atomic<Turn> step{kFirstTurn - 1};  ///< the last one that lies in the stage
  std::atomic<std::uint32_t> left{0};                   ///< 1: the member has left the group
  std::atomic<std::uint64_t> pieces{0};                 ///< of a step that is not all there yet
  std::atomic<Offset> stage{0};                         ///< in its heap; 0: none yet
  std::atomic<Offset> payloads{0};                      ///< of its posts; likewise
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
  /// Whoever reads lines one after the other gets the next ones as well, which their writer then
  /// has to take back.
  alignas(128) std::byte apart_from_next[384];
};
static_assert(sizeof(MemberLine) == 512);

struct alignas(128) GroupTable {
  /// Another one: the memory has been used anew, after all have departed.
  std::atomic<std::uint64_t> generation{0};
  std::atomic<std::uint32_t> departed{0};  ///< members that look at nothing of the group's any more
  std::atomic<std::uint32_t> left{0};      ///< lines that say so
  std::atomic<std::uint32_t> long_waits{0};  ///< how often a line's waits_in was written
  std::atomic<std::uint32_t> told{0};        ///< of the failure: 0 no, 1 being written, 2 there
  /// How many posts there are of the turn that uses these now. Who brings its last one wakes the
  /// sleepers.
  struct alignas(128) PostCounts {
    std::atomic<std::uint32_t> of[kMostPosts];

    /// @param slot of the turn's posts @return whether this is the turn's last one. It leaves 0:
    /// the next turn that counts here begins only after all have seen everybody in a later turn
    /// than this (meeting.h), so the last one has stored that 0 by then.
    bool is_last(Turn slot, int members) {
      const std::uint32_t all = static_cast<std::uint32_t>(members);
      if (of[slot].fetch_add(1, std::memory_order_seq_cst) + 1 != all) return false;
      of[slot].store(0, std::memory_order_seq_cst);
      return true;
    }
  };
  PostCounts post_counts[kCollectiveLanes];
  alignas(128) std::uint32_t members = 0;
  std::uint32_t failure_bytes = 0;
  char failure[4216] = {};

  static constexpr Turn ahead(Lane lane) { return lane == Lane::prompt ? kAhead : kBulkAhead; }
  /// From a member's first post to the next member's. Those of one turn lie at other page offsets:
  /// a core delays a load whose address equals that of a recent store modulo 4 KiB.
  static constexpr std::size_t post_stride(Lane lane) { return posts_of(ahead(lane)) + 2; }

  /// The members' lines of a lane, one after the other.
  MemberLine* lines(Lane lane) {
    return reinterpret_cast<MemberLine*>(this + 1) + static_cast<std::size_t>(lane) * members;
  }
  MemberLine& line(int member) { return lines(Lane::prompt)[static_cast<std::size_t>(member)]; }

  /// Whether there is memory for posts. None are needed unless all members share memory. New ones
  /// are zeroed.
  enum class Posts { none, all };
  /// The members' posts of a lane, behind all lines; a member's every post_stride().
  Post* posts(Lane lane) {
    auto* const first = reinterpret_cast<Post*>(lines(Lane::prompt) + kCollectiveLanes * members);
    return lane == Lane::prompt ? first : first + members * post_stride(Lane::prompt);
  }

  static std::size_t bytes(std::size_t members, Posts posts) {
    return sizeof(GroupTable) + kCollectiveLanes * members * sizeof(MemberLine) +
           (posts == Posts::all ? members * posts_of_all_lanes() * sizeof(Post) : 0);
  }
  /// @param posts to be zeroed
  static GroupTable* make_at(std::byte* memory, std::size_t members, Posts posts,
                             std::uint64_t generation);

  /// The first to tell is heard. @return whether this was it
  bool tell_failure(const std::string& text);
  bool has_failed() const { return told.load(std::memory_order_seq_cst) != 0; }
  /// Empty where who began to tell it has died over that.
  std::string failure_text();

 private:
  static constexpr std::size_t posts_of_all_lanes() {
    return post_stride(Lane::prompt) + post_stride(Lane::bulk);
  }
};

}  // namespace dtrun::collectives::cpu
