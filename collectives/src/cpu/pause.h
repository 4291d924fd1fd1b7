// Pause: what a polling rank does between two polls.
#pragma once

#include <sched.h>

#include "algorithm.h"

namespace dtrun::collectives::cpu {

/// The waiting rank and the awaited one may share a core while another core is idle. After some
/// microseconds the waiting rank yields at every poll: the awaited one runs at once, and the kernel
/// sees two runnable threads and moves one of them to the idle core.
/// @param look how often the caller has polled in vain
inline void pause_between_looks(int look, Crowding crowding) {
  constexpr int kPauses = 64;
  if (crowding == Crowding::crowded || look >= kPauses) {
    ::sched_yield();
    return;
  }
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace dtrun::collectives::cpu
