#include "cpus/virtual_devices.h"

#include <fmt/core.h>

#include "dtrun/base/error.h"

namespace dtrun::launcher {
namespace {

std::vector<std::string> entries_of(const std::string& list) {
  std::vector<std::string> entries;
  std::string entry;
  for (const char letter : list + ",") {
    if (letter == ',') {
      entries.push_back(std::move(entry));
      entry.clear();
    } else if (letter != ' ') {
      entry += letter;
    }
  }
  if (entries.size() == 1 && entries[0].empty()) entries.clear();
  return entries;
}

}  // namespace

std::vector<std::string> virtual_devices(int local_ranks,
                                         const std::optional<std::string>& visible_devices) {
  std::vector<std::string> result;
  if (!visible_devices) {
    for (int rank = 0; rank < local_ranks; ++rank) result.push_back(std::to_string(rank));
    return result;
  }
  result = entries_of(*visible_devices);
  if (result.size() < static_cast<std::size_t>(local_ranks))
    throw base::Error(
        base::ErrorCode::kUsage,
        fmt::format("--virtual_local_rank gives each of {} ranks a device, and "
                    "CUDA_VISIBLE_DEVICES='{}' has {}",
                    local_ranks, *visible_devices, result.size()),
        "", "--nproc_per_node with as many ranks as devices, or a longer CUDA_VISIBLE_DEVICES");
  result.resize(static_cast<std::size_t>(local_ranks));
  return result;
}

}  // namespace dtrun::launcher
