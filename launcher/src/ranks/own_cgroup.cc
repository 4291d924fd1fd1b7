#include "ranks/own_cgroup.h"

#include <fstream>
#include <sstream>
#include <utility>

namespace dtrun::launcher {
namespace {

std::string read_file(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

OwnCgroup::OwnCgroup(std::string root)
    : root_(std::move(root)),
      cgroups_(read_file(root_ + "/proc/self/cgroup")),
      mounts_(read_file(root_ + "/proc/self/mountinfo")) {}

CgroupPlace OwnCgroup::place(std::string_view controller) const {
  CgroupPlace place = find_cgroup_place(cgroups_, mounts_, controller);
  if (place.folder.empty()) return place;
  place.folder.insert(0, root_);
  place.mount.insert(0, root_);
  return place;
}

}  // namespace dtrun::launcher
