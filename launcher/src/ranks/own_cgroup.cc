#include "ranks/own_cgroup.h"

#include <fstream>
#include <sstream>

namespace dtrun::launcher {
namespace {

std::string read_file(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

CgroupPlace own_cgroup(std::string_view controller, const std::string& root) {
  CgroupPlace place = find_cgroup_place(read_file(root + "/proc/self/cgroup"),
                                        read_file(root + "/proc/self/mountinfo"), controller);
  if (place.folder.empty()) return place;
  place.folder.insert(0, root);
  place.mount.insert(0, root);
  return place;
}

}  // namespace dtrun::launcher
