// NeighboursMemory: memory of each rank that the next rank reads, too.
#pragma once

#include <cstddef>

#include "bench/contender.h"
#include "dtrun/base/shared_memory.h"

namespace dtrun::bench {

class NeighboursMemory {
 public:
  /// Collective. @param bytes of each rank's, equal on all ranks
  NeighboursMemory(Contender& contender, std::size_t bytes);

  /// Whether there was enough for all ranks. The same on all of them.
  bool exists() const { return exists_; }
  /// Whether each rank has its neighbour's: they lie on one machine, and may open each other's
  /// files. The same on all ranks.
  bool is_shared() const { return is_shared_; }
  std::byte* own() const { return own_.data(); }
  /// Of the rank before this one. Only where it is shared.
  const std::byte* neighbours() const { return neighbours_.data(); }

 private:
  base::SharedMemory own_, neighbours_;
  bool exists_ = false;
  bool is_shared_ = false;
};

}  // namespace dtrun::bench
