#include "dtrun/base/cpu_quota.h"

#include <sys/stat.h>

#include <fstream>
#include <string>

namespace dtrun::base {
namespace {

/// "max 100000" or "150000 100000" of a cgroup of version 2; of version 1 two files.
std::optional<double> quota_of(const std::string& folder) {
  double quota = 0;
  double period = 0;
  if (std::ifstream v2(folder + "/cpu.max"); v2 >> quota >> period && period > 0)
    return quota / period;
  std::ifstream v1_quota(folder + "/cpu.cfs_quota_us");
  std::ifstream v1_period(folder + "/cpu.cfs_period_us");
  if (v1_quota >> quota && v1_period >> period && quota > 0 && period > 0) return quota / period;
  return std::nullopt;
}

/// The folder of the process's cgroup that has the cpu controller, below `root`.
struct Folder {
  std::string mount;
  std::string path;  ///< "/" or "/a/b"
};
std::optional<Folder> folder_of(const std::string& root, const char* membership) {
  std::ifstream file(membership);
  std::optional<Folder> unified;
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string path = line.substr(second + 1);
    if (controllers == ",,") unified = Folder{root, path};
    if (controllers.find(",cpu,") != std::string::npos) return Folder{root + "/cpu", path};
  }
  return unified;
}

}  // namespace

std::optional<CpuQuota> cpu_quota(const char* root, const char* membership) {
  const std::optional<Folder> folder = folder_of(root, membership);
  if (!folder) return std::nullopt;
  std::optional<CpuQuota> narrowest;
  for (std::string path = folder->path;; path.resize(path.rfind('/'))) {
    const std::string here = folder->mount + (path == "/" ? "" : path);
    struct stat status {};
    const std::optional<double> cpus = quota_of(here);
    if (cpus && (!narrowest || *cpus < narrowest->cpus) && ::stat(here.c_str(), &status) == 0)
      narrowest = CpuQuota{*cpus, status.st_ino};
    if (path.empty() || path == "/" || path.find('/') == std::string::npos) return narrowest;
  }
}

}  // namespace dtrun::base
