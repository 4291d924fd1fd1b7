// OwnCpu: gets a rank away from the CPU of another rank that it waits for, where each could have
// one of its own. The kernel may put two ranks on one CPU, and leaves them there: as each yields
// while it waits, it takes both for hot in that CPU's caches. Each call then takes as long as two
// switches between them. Thread-safe; each thread of a rank counts as the rank.
#pragma once

#include <atomic>
#include <cstdint>

#include "commons.h"

namespace dtrun::collectives::cpu {

class OwnCpu {
 public:
  OwnCpu(const Commons& commons, int world_rank) : commons_(commons), rank_(world_rank) {}

  /// Says where this thread runs, and goes elsewhere if a rank of a lower number has said the same
  /// a moment ago. The thread's affinity is afterwards set to what it was before: what another
  /// program sets meanwhile is lost.
  /// @param shares whether a world rank uses these commons
  template <typename Shares>
  void leave_if_shared(Shares shares) {
    const int cpu = tell();
    if (cpu < 0) return;
    for (int rank = 0; rank < rank_; ++rank)
      if (shares(rank) && waits_on(commons_.cell(rank), cpu)) return leave(cpu);
  }

 private:
  /// @return -1: not known, or this rank has looked a moment ago
  int tell();
  /// Whether that rank has yielded there a moment ago. Of one that computes since nobody knows
  /// where.
  bool waits_on(const Cell& cell, int cpu) const;
  static void leave(int cpu);

  const Commons& commons_;
  const int rank_;
  std::atomic<std::int64_t> looked_ns_{0};
};

}  // namespace dtrun::collectives::cpu
