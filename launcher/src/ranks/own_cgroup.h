// OwnCgroup: the place of a cgroup that this process is in, as /proc tells it.
#pragma once

#include <string>
#include <string_view>

#include "ranks/cgroup_place.h"

namespace dtrun::launcher {

/// @param controller of version 1; empty: version 2
/// @param root before /proc and before the place; not empty for tests
CgroupPlace own_cgroup(std::string_view controller = "", const std::string& root = "");

}  // namespace dtrun::launcher
