// Heap: one rank's part of the commons: a fixed virtual span that a local peer maps when it first
// needs something there, committed as it grows, so that a lack of memory is an Error and never a
// SIGBUS. Owned by the rank's World; peers map it as a CommonsSpan. Offsets, not addresses, go
// between ranks. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

#include "commons.h"

namespace dtrun::collectives::cpu {

class Heap {
 public:
  /// @param commons outlives this. @throws Error kSystem
  Heap(const Commons& commons, int world_rank);
  /// Zeroed, 128-byte aligned. @throws Error kSystem when the machine has no more memory
  Offset allocate(std::size_t bytes);
  void free(Offset offset);

  std::byte* at(Offset offset) const { return memory_.at(offset); }

 private:
  const Commons& commons_;
  const std::size_t begin_;  ///< in the commons
  const CommonsSpan memory_;
  std::mutex mutex_;
  std::size_t used_;
  std::size_t committed_ = 0;
  std::map<Offset, std::size_t> sizes_;
  std::multimap<std::size_t, Offset> free_;
};

}  // namespace dtrun::collectives::cpu
