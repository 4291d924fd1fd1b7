// RecentTargets: what the last four moves of a tensor led to, as the marks of their specs in one
// word: a tensor that never moves twice keeps no more than that.
#pragma once

#include <atomic>
#include <cstdint>

#include "dtrun/dtensor/mesh/spec.h"
#include "mesh/spec_table.h"

namespace dtrun::dtensor {

/// Puts the target's mark before the others. @return whether it was among them
inline bool note_target(std::atomic<std::uint64_t>& marks, const Spec& to) {
  constexpr int kBits = 16;
  const std::uint64_t mark = to.body()->mark;
  const std::uint64_t known = marks.load(std::memory_order_relaxed);
  marks.store(known << kBits | mark, std::memory_order_relaxed);
  for (std::uint64_t left = known; left != 0; left >>= kBits)
    if ((left & 0xffff) == mark) return true;
  return false;
}

}  // namespace dtrun::dtensor
