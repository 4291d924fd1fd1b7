// Pause: what a rank does between two looks for what another rank shows it.
#pragma once

#include <sched.h>

#include "cpu_share.h"

namespace dtrun::collectives::cpu {

/// A rank that waits and the one it waits for may have been put on one core while another stands
/// idle. After some microseconds the waiting rank gives way at every look: so the other goes on at
/// once, and the kernel sees two who can run, and takes one of them to the idle core.
/// @param look how often the caller has looked in vain
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
