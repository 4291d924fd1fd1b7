// CpuQuota: the narrowest limit of CPU time among a process's cgroups, of both versions.
#pragma once

#include <cstdint>
#include <optional>

namespace dtrun::base {

struct CpuQuota {
  double cpus = 0;
  std::uint64_t cgroup = 0;  ///< which one has it: its inode
};
/// nullopt: none. @param root where cgroups are mounted; @param membership as /proc/self/cgroup
std::optional<CpuQuota> cpu_quota(const char* root = "/sys/fs/cgroup",
                                  const char* membership = "/proc/self/cgroup");

}  // namespace dtrun::base
