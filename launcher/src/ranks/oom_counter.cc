#include "ranks/oom_counter.h"

#include <fstream>
#include <optional>
#include <vector>

namespace dtrun::launcher {
namespace {

// Reads N of the line "oom_kill N".
std::optional<std::int64_t> read_count(const std::string& file) {
  std::ifstream lines(file);
  std::string name;
  std::int64_t number = 0;
  while (lines >> name >> number)
    if (name == "oom_kill") return number;
  return std::nullopt;
}

// The cgroup's own, and those of all above it that can be seen: not each cgroup counts memory.
void add_upwards(const CgroupPlace& place, const char* name, std::vector<std::string>& files) {
  std::string folder = place.folder;
  while (folder.size() > place.mount.size()) {
    files.push_back(folder + name);
    folder.erase(folder.rfind('/'));
  }
  if (!place.mount.empty()) files.push_back(place.mount + name);
}

std::vector<std::string> candidates(const OwnCgroup& own) {
  std::vector<std::string> files;
  add_upwards(own.place(), "/memory.events", files);
  add_upwards(own.place("memory"), "/memory.oom_control", files);
  return files;
}

}  // namespace

OomCounter::OomCounter(const OwnCgroup& own) {
  for (const std::string& file : candidates(own)) {
    const auto count = read_count(file);
    if (!count) continue;
    file_ = file;
    claimed_ = *count;
    return;
  }
}

bool OomCounter::claim_one() {
  if (file_.empty() || read_count(file_).value_or(0) <= claimed_) return false;
  ++claimed_;
  return true;
}

}  // namespace dtrun::launcher
