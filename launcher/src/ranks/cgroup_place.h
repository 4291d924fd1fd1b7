// CgroupPlace: where a cgroup of a process lies in the file system: that of version 2, or that of a
// controller of version 1. Pure: reads the texts of /proc/self/cgroup and /proc/self/mountinfo;
// own_cgroup.h reads the files.
#pragma once

#include <string>
#include <string_view>

namespace dtrun::launcher {

struct CgroupPlace {
  std::string folder;   ///< empty: none, and
  std::string why_not;  ///< why
  std::string mount;    ///< at or above the folder: what is above that cannot be seen
  /// Slurm's own: it signals and counts the processes of the cgroups that it has made, and of no
  /// cgroup below them.
  bool of_slurm = false;
};

/// @param controller of version 1, such as "memory"; empty: version 2
CgroupPlace find_cgroup_place(std::string_view cgroups, std::string_view mounts,
                              std::string_view controller = "");

}  // namespace dtrun::launcher
