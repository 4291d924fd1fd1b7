// OwnCpu: gets a rank away from the CPU of another rank that it waits for, where each could have
// one of its own. The kernel may put two ranks on one CPU, and leaves them there: as each yields
// while it waits, it takes both for hot in that CPU's caches. Each call then takes as long as two
// switches between them. Where ranks share CPUs, it evens out how many wait on each. Thread-safe;
// each thread of a rank counts as the rank.
#pragma once

#include <sched.h>

#include <array>
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
  /// The same where ranks share CPUs: goes to one that has fewer of those that wait, if this one
  /// has two more, and none of a higher number.
  template <typename Shares>
  void leave_if_crowded(int ranks, Shares shares) {
    const int cpu = tell();
    if (cpu < 0) return;
    Counts counts{};
    for (int rank = 0; rank < ranks; ++rank) {
      if (rank != rank_ && !(shares(rank) && has_yielded(commons_.cell(rank)))) continue;
      const int its = commons_.cell(rank).cpu.load(std::memory_order_relaxed);
      if (its < 0 || its >= CPU_SETSIZE) continue;
      if (its == cpu && rank > rank_) return;
      ++counts[static_cast<std::size_t>(its)];
    }
    leave_for_fewer(cpu, counts);
  }

 private:
  using Counts = std::array<std::uint16_t, CPU_SETSIZE>;
  /// Goes to the allowed CPU with the fewest, if it has at least two less than that one.
  static void leave_for_fewer(int cpu, const Counts& counts);
  /// A moment ago. Of one that computes since nobody knows where.
  bool has_yielded(const Cell& cell) const;
  /// @return -1: not known, or this rank has looked a moment ago
  int tell();
  /// Whether that rank has yielded there a moment ago.
  bool waits_on(const Cell& cell, int cpu) const;
  static void leave(int cpu);

  const Commons& commons_;
  const int rank_;
  std::atomic<std::int64_t> looked_ns_{0};
};

}  // namespace dtrun::collectives::cpu
