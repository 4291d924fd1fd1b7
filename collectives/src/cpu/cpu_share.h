// CpuShare: how much of the machine's CPUs a rank may use, by its affinity and its cgroup's quota,
// and whether each rank of the machine has a CPU of its own. Ranks that are bound to different CPUs
// do not crowd each other.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "algorithm.h"
#include "commons.h"
#include "dtrun/base/cpu_quota.h"

namespace dtrun::collectives::cpu {

class CpuShare {
 public:
  /// Writes this rank's share to the commons. Before any other rank reads it.
  CpuShare(const Commons& commons, int world_rank);
  /// Whether there is a CPU for each of so many threads of each rank. After all ranks have written
  /// theirs. @param shares whether a world rank uses this commons
  template <typename Shares>
  bool has_cpus_for(int threads, int ranks, Shares shares) const {
    int here = 0;
    int in_cgroup = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      if (!shares(rank)) continue;
      ++here;
      if (quota_ && commons_.cell(rank).quota_cgroup.load() == quota_->cgroup) ++in_cgroup;
    }
    return threads * here <= cpus_of_all() && !(quota_ && threads * in_cgroup > quota_->cpus);
  }

  /// How many of the CPUs the ranks of the machine have together, at least 1: as if each had as
  /// much of its quota as the one that has the least. Ranks that are bound to a few of the CPUs
  /// count as if each ran on all. The same on all ranks: by what each has written of itself. After
  /// all have.
  template <typename Shares>
  int cores_of_all(int ranks, Shares shares) const {
    int here = 0;
    for (int rank = 0; rank < ranks; ++rank) here += shares(rank) ? 1 : 0;
    double cores = cpus_of_all();
    for (int rank = 0; rank < ranks; ++rank) {
      const Cell& cell = commons_.cell(rank);
      if (!shares(rank) || cell.quota_cgroup.load() == 0) continue;
      // Multiplied first: a third of a CPU for each of three is one.
      const double of_cgroup = cell.quota_cpus.load() * here;
      cores = std::min(cores, of_cgroup / under_quota_of(rank, ranks, shares));
    }
    return std::max(1, static_cast<int>(cores));
  }

 private:
  /// How many ranks are in that rank's cgroup.
  template <typename Shares>
  int under_quota_of(int of_rank, int ranks, Shares shares) const {
    const std::uint64_t cgroup = commons_.cell(of_rank).quota_cgroup.load();
    int count = 0;
    for (int rank = 0; rank < ranks; ++rank)
      if (shares(rank) && commons_.cell(rank).quota_cgroup.load() == cgroup) ++count;
    return count;
  }
  /// CPUs on which at least one of the ranks may run.
  int cpus_of_all() const;

  const Commons& commons_;
  const std::optional<base::CpuQuota> quota_ = base::cpu_quota();
};

}  // namespace dtrun::collectives::cpu
