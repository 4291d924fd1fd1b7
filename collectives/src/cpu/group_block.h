// GroupBlock: what one rank shows its local peers about one group, in its heap: where the rings are
// on which it sends, its two posts, and how far it is in a collective that goes by a stage. Its
// memory is used anew only after all local members have left the group.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>

#include "channel.h"
#include "heap.h"
#include "post.h"

namespace dtrun::collectives::cpu {

struct alignas(128) GroupBlock {
  std::atomic<std::uint32_t> departed{0};  ///< how many local peers have left the group
  std::uint32_t reserved = 0;
  std::atomic<Offset> stage{0};                         ///< 0: none yet
  alignas(128) std::atomic<Turn> step{kFirstTurn - 1};  ///< the last one that lies in the stage
  Post posts[2];
  alignas(128) std::byte payloads[2][kPostBytes];

  struct Slot {
    std::atomic<Offset> rings[kLanes] = {};  ///< 0: nothing has been sent yet
  };
  /// One per member, in group order: the rings to that member.
  Slot* slots() { return reinterpret_cast<Slot*>(this + 1); }
};

inline Offset allocate_group_block(Heap& heap, std::size_t members) {
  const Offset offset = heap.allocate(sizeof(GroupBlock) + members * sizeof(GroupBlock::Slot));
  // The payloads stay as they are: no value is ever read that was not written before.
  auto* block = new (heap.at(offset)) GroupBlock;
  for (std::size_t member = 0; member < members; ++member)
    new (block->slots() + member) GroupBlock::Slot();
  return offset;
}

}  // namespace dtrun::collectives::cpu
