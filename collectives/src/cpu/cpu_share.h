// CpuShare: how much of the machine's CPUs a rank may use, by its affinity and its cgroup's quota,
// and whether each rank of the machine has a CPU of its own. Ranks that are bound to different CPUs
// do not crowd each other.
#pragma once

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

 private:
  /// CPUs on which at least one of the ranks may run.
  int cpus_of_all() const;

  const Commons& commons_;
  const std::optional<base::CpuQuota> quota_ = base::cpu_quota();
};

}  // namespace dtrun::collectives::cpu
