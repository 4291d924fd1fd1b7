#include "cpus/device_count.h"

#include <dirent.h>
#include <dlfcn.h>

#include <algorithm>
#include <memory>
#include <string_view>

#include "dtrun/base/cpu_list.h"
#include "dtrun/base/env.h"
#include "dtrun/base/split.h"

namespace dtrun::launcher {
namespace {

std::optional<int> count_by_nvml() {
  void* const library = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return std::nullopt;
  const auto initialize = reinterpret_cast<int (*)()>(::dlsym(library, "nvmlInit_v2"));
  const auto get_count =
      reinterpret_cast<int (*)(unsigned*)>(::dlsym(library, "nvmlDeviceGetCount_v2"));
  const auto shut_down = reinterpret_cast<int (*)()>(::dlsym(library, "nvmlShutdown"));
  std::optional<int> result;
  unsigned count = 0;
  if (initialize != nullptr && get_count != nullptr && initialize() == 0) {
    if (get_count(&count) == 0) result = static_cast<int>(count);
    if (shut_down != nullptr) shut_down();
  }
  ::dlclose(library);
  return result;
}

int count_by_proc() {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc/driver/nvidia/gpus"),
                                                   ::closedir);
  int count = 0;
  if (folder)
    while (const dirent* entry = ::readdir(folder.get())) count += entry->d_name[0] != '.';
  return count;
}

}  // namespace

int count_visible(int present, const std::string& visible) {
  int count = 0;
  for (const std::string_view part : base::split(visible, ',')) {
    const std::string_view entry = base::trimmed(part);
    const auto index = base::parse_integer(entry);
    const bool named = entry.substr(0, 4) == "GPU-" || entry.substr(0, 4) == "MIG-";
    if (!named && (!index || *index < 0 || *index >= present)) break;
    ++count;
  }
  return std::min(count, present);
}

int count_gpus(const std::optional<std::string>& visible) {
  if (visible && visible->empty()) return 0;
  const std::optional<int> counted = count_by_nvml();
  const int present = counted ? *counted : count_by_proc();
  return visible ? count_visible(present, *visible) : present;
}

int count_cpus() {
  return static_cast<int>(base::allowed_cpus().size());
}

}  // namespace dtrun::launcher
