// Pause: what a polling rank does between two polls.
#pragma once

#include <sched.h>

#include <chrono>

#include "algorithm.h"

namespace dtrun::collectives::cpu {

/// A rank polls this long for short messages: where each rank has a core, and where ranks share
/// cores.
inline constexpr std::chrono::microseconds time_to_exchange(Crowding crowding) {
  return std::chrono::microseconds(crowding == Crowding::crowded ? 100 : 20);
}

/// Whether the rank gives its core away before its next poll: the wait may become a long one.
/// @param look how often the caller has polled in vain
inline bool yields_between_looks(int look, Crowding crowding) {
  constexpr int kPauses = 64;
  return crowding == Crowding::crowded || look >= kPauses;
}

/// The waiting rank and the awaited one may share a core while another core is idle. After some
/// microseconds the waiting rank yields at every poll: the awaited one runs at once, and the kernel
/// sees two runnable threads and moves one of them to the idle core.
/// @param look how often the caller has polled in vain
inline void pause_between_looks(int look, Crowding crowding) {
  if (yields_between_looks(look, crowding)) {
    ::sched_yield();
    return;
  }
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace dtrun::collectives::cpu
