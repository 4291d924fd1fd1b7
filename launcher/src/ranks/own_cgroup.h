// OwnCgroup: the places of the cgroups that this process is in, as /proc tells them; read once.
#pragma once

#include <string>
#include <string_view>

#include "ranks/cgroup_place.h"

namespace dtrun::launcher {

class OwnCgroup {
 public:
  /// @param root before /proc and before the places; not empty for tests
  explicit OwnCgroup(std::string root = "");

  /// @param controller of version 1; empty: version 2
  CgroupPlace place(std::string_view controller = "") const;

 private:
  std::string root_;
  std::string cgroups_;
  std::string mounts_;
};

}  // namespace dtrun::launcher
