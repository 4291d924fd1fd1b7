// Heap: one rank's shared memory: a memfd with a fixed virtual span that every local peer maps
// whole once, committed as it grows, so that a lack of memory is an Error and never a SIGBUS. It
// begins with the rank's doorbell and board. Owned by the rank's World; peers see it as a PeerHeap.
// Offsets, not addresses, go between ranks. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "doorbell.h"
#include "dtrun/base/shared_memory.h"
#include "rank_board.h"

namespace dtrun::collectives::cpu {

using Offset = std::uint64_t;  ///< in a heap; 0: none

struct HeapHeader {
  Doorbell doorbell;
  alignas(128) RankBoard board;
};

class Heap {
 public:
  /// @throws Error kSystem
  Heap();
  /// Zeroed, 128-byte aligned. @throws Error kSystem when the machine has no more memory
  Offset allocate(std::size_t bytes);
  void free(Offset offset);

  HeapHeader& header() const { return *reinterpret_cast<HeapHeader*>(memory_.data()); }
  std::byte* at(Offset offset) const { return memory_.data() + offset; }
  int fd() const { return memory_.fd(); }
  std::size_t span() const { return memory_.size(); }

 private:
  base::SharedMemory memory_;
  std::mutex mutex_;
  std::size_t used_ = 0;
  std::size_t committed_ = 0;
  std::map<Offset, std::size_t> sizes_;
  std::multimap<std::size_t, Offset> free_;
};

/// A local peer's heap, mapped here.
class PeerHeap {
 public:
  PeerHeap() = default;
  explicit PeerHeap(base::SharedMemory memory) : memory_(std::move(memory)) {}
  HeapHeader& header() const { return *reinterpret_cast<HeapHeader*>(memory_.data()); }
  std::byte* at(Offset offset) const { return memory_.data() + offset; }

 private:
  base::SharedMemory memory_;
};

}  // namespace dtrun::collectives::cpu
