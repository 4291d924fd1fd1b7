// GroupBlock: what one rank shows its local peers about one group, in its heap: where the rings are
// on which it sends. Its memory is used anew only after all local members have left the group.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>

#include "channel.h"
#include "heap.h"

namespace dtrun::collectives::cpu {

struct GroupBlock {
  std::atomic<std::uint32_t> departed{0};  ///< how many local peers have left the group
  std::uint32_t reserved = 0;

  struct Slot {
    std::atomic<Offset> rings[kLanes] = {};  ///< 0: nothing has been sent yet
  };
  /// One per member, in group order: the rings to that member.
  Slot* slots() { return reinterpret_cast<Slot*>(this + 1); }
};

inline Offset allocate_group_block(Heap& heap, std::size_t members) {
  const Offset offset = heap.allocate(sizeof(GroupBlock) + members * sizeof(GroupBlock::Slot));
  auto* block = new (heap.at(offset)) GroupBlock();
  for (std::size_t member = 0; member < members; ++member)
    new (block->slots() + member) GroupBlock::Slot();
  return offset;
}

}  // namespace dtrun::collectives::cpu
