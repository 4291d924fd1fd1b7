#include "ranks/cgroup_place.h"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

namespace dtrun::launcher {
namespace {

struct Mount {
  std::string root;    // which folder of the file system is mounted
  std::string folder;  // where
  std::string type;
  std::string options;  // of the file system; in version 1 its controllers are among them
};

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const auto end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return parts;
}

// The kernel writes a blank as \040.
std::string unescape(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 3 >= text.size()) {
      result += text[i];
      continue;
    }
    result +=
        static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + text[i + 3] - '0');
    i += 3;
  }
  return result;
}

// "36 35 0:30 ROOT FOLDER OPTIONS [TAGS...] - TYPE SOURCE OPTIONS"
Mount read_mount(std::string_view line) {
  const auto fields = split(line, ' ');
  const auto dash = line.find(" - ");
  if (fields.size() < 5 || dash == std::string_view::npos) return {};
  const auto rest = split(line.substr(dash + 3), ' ');
  if (rest.size() < 3) return {};
  return {unescape(fields[3]), unescape(fields[4]), std::string(rest[0]), std::string(rest[2])};
}

bool has(std::string_view list, std::string_view name) {
  const auto names = split(list, ',');
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Reads a line like "4:cpu,memory:/path" or, of version 2, "0::/path".
std::string find_path(std::string_view cgroups, std::string_view controller) {
  for (const std::string_view line : split(cgroups, '\n')) {
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string_view::npos || second == std::string_view::npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    const bool meant = controller.empty() ? line.starts_with("0::") : has(controllers, controller);
    if (meant) return std::string(line.substr(second + 1));
  }
  return "";
}

bool is_of(const Mount& mount, std::string_view controller) {
  if (controller.empty()) return mount.type == "cgroup2";
  return mount.type == "cgroup" && has(mount.options, controller);
}

bool climbs(std::string_view path) {
  return path.substr(0, 4) == "/../" || path == "/..";
}

}  // namespace

CgroupPlace find_cgroup_place(std::string_view cgroups, std::string_view mounts,
                              std::string_view controller) {
  CgroupPlace place;
  const std::string path = find_path(cgroups, controller);
  const std::string what =
      controller.empty() ? "cgroup2" : fmt::format("cgroup with {}", controller);
  if (path.empty()) {
    place.why_not = controller.empty()
                        ? "this kernel has no cgroups of version 2, or there is no /proc"
                        : fmt::format("this process is in no {} of version 1", what);
    return place;
  }
  place.of_slurm = path.find("slurm") != std::string::npos;
  place.why_not = fmt::format("no file system of type {} is mounted", what);
  for (const std::string_view line : split(mounts, '\n')) {
    const Mount mount = read_mount(line);
    if (!is_of(mount, controller)) continue;
    place.why_not =
        fmt::format("the mount of {} does not show this process's own cgroup {}", what, path);
    const std::string root = mount.root == "/" ? "" : mount.root;
    const bool below = path == root || path.compare(0, root.size() + 1, root + "/") == 0;
    if (climbs(path) || climbs(mount.root) || !below) continue;
    place.mount = mount.folder;
    place.folder = mount.folder + path.substr(root.size());
    if (place.folder.size() > 1 && place.folder.back() == '/') place.folder.pop_back();
    place.why_not.clear();
    return place;
  }
  return place;
}

}  // namespace dtrun::launcher
