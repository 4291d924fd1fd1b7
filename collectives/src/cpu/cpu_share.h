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

  /// How many of the CPUs the ranks of the machine have together, at least 1. The same on all of
  /// them: by what each has written of itself. After all have.
  template <typename Shares>
  int cores_of_all(int ranks, Shares shares) const {
    int here = 0;
    for (int rank = 0; rank < ranks; ++rank) here += shares(rank) ? 1 : 0;
    double cores = cpus_of_all();
    for (int rank = 0; rank < ranks; ++rank)
      if (shares(rank)) cores = std::min(cores, here * cpus_of_quota(rank, ranks, shares));
    return std::max(1, static_cast<int>(cores));
  }

 private:
  /// What that rank's quota leaves for each rank under it; a whole machine where it has none.
  template <typename Shares>
  double cpus_of_quota(int of_rank, int ranks, Shares shares) const {
    const std::uint64_t cgroup = commons_.cell(of_rank).quota_cgroup.load();
    if (cgroup == 0) return cpus_of_all();
    int in_cgroup = 0;
    for (int rank = 0; rank < ranks; ++rank)
      if (shares(rank) && commons_.cell(rank).quota_cgroup.load() == cgroup) ++in_cgroup;
    return commons_.cell(of_rank).quota_cpus.load() / in_cgroup;
  }
  /// CPUs on which at least one of the ranks may run.
  int cpus_of_all() const;

  const Commons& commons_;
  const std::optional<base::CpuQuota> quota_ = base::cpu_quota();
};

}  // namespace dtrun::collectives::cpu
