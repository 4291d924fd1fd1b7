// CpuShare: how much of the machine's CPUs a rank may use, by its mask and its cgroup's quota, and
// whether the ranks of one machine have a CPU each. A rank bound to one CPU is not crowded where
// the others are bound to others.
#pragma once

#include <cstdint>
#include <optional>

#include "commons.h"
#include "dtrun/base/cpu_quota.h"

namespace dtrun::collectives::cpu {

/// Whether this machine has a core for each of the world's ranks on it.
enum class Crowding { alone, crowded };

class CpuShare {
 public:
  /// Enters this rank's share into the commons, before the others ask.
  CpuShare(const Commons& commons, int world_rank);
  /// Once all ranks have entered theirs. @param shares(world rank): it shares the commons
  template <typename Shares>
  Crowding crowding(int ranks, Shares shares) const {
    int here = 0;
    int in_cgroup = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      if (!shares(rank)) continue;
      ++here;
      if (quota_ && commons_.cell(rank).quota_cgroup.load() == quota_->cgroup) ++in_cgroup;
    }
    const bool crowded = here > cpus_of_all() || (quota_ && in_cgroup > quota_->cpus);
    return crowded ? Crowding::crowded : Crowding::alone;
  }

 private:
  /// On which any of the ranks may run.
  int cpus_of_all() const;

  const Commons& commons_;
  const std::optional<base::CpuQuota> quota_ = base::cpu_quota();
};

}  // namespace dtrun::collectives::cpu
