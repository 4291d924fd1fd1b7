// GroupBlock: what one rank keeps in its heap for its local peers about one group, beside its line
// and posts in the group's table: the rings on which it sends, and what it has called lately.
// Zeroed memory is a new one. Used anew only after all local members have left the group.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "call_history.h"
#include "channel.h"
#include "group_table.h"

namespace dtrun::collectives::cpu {

struct alignas(128) GroupBlock {
  CallHistory history;

  struct Slot {
    std::atomic<Offset> rings[kLanes];  ///< 0: nothing has been sent yet
  };
  /// One per member, in group order: the rings to that member.
  Slot* slots() { return reinterpret_cast<Slot*>(this + 1); }

  static std::size_t bytes(std::size_t members) {
    return sizeof(GroupBlock) + members * sizeof(Slot);
  }
};

/// Where one rank keeps its part of a group, in its heap.
struct GroupMemory {
  Offset block = 0;
  Offset table = 0;  ///< 0: another member keeps it, or it lies in the commons
};

}  // namespace dtrun::collectives::cpu
