#include "hosts/host_place.h"

#include <errno.h>
#include <fmt/core.h>
#include <unistd.h>

#include <array>
#include <climits>

#include "dtrun/base/error.h"
#include "options/option_names.h"

namespace dtrun::launcher {

using base::Error;
using base::ErrorCode;

std::string own_program_path() {
  std::array<char, PATH_MAX> path{};
  const ssize_t size = ::readlink("/proc/self/exe", path.data(), path.size());
  if (size <= 0) throw base::system_error("read /proc/self/exe");
  return {path.data(), static_cast<std::size_t>(size)};
}

void enter_folder(const std::string& folder, const std::string& origin) {
  if (::chdir(folder.c_str()) == 0) return;
  throw Error(ErrorCode::kUsage, fmt::format("cannot work in the folder {}", folder),
              base::system_error("enter it").why(),
              fmt::format("{} names one that is on every host", origin));
}

std::vector<std::string> variables_of_hosts() {
  std::vector<std::string> names;
  for (const OptionRow& row : option_table()) {
    if (row.group != OptionGroup::kHosts) continue;
    for (const char* prefix : {"PET_", "DTRUN_"}) names.push_back(variable_of(row, prefix));
  }
  return names;
}

std::vector<std::string> node_arguments(const HostOrder& order, const HostNode& node, int port,
                                        std::optional<int> listener) {
  std::vector<std::string> words = order.options;
  words.push_back(fmt::format("--nnodes={}", order.node_count));
  words.push_back(fmt::format("--node_rank={}", node.node_rank));
  words.push_back(fmt::format("--nproc_per_node={}", node.ranks));
  words.push_back(fmt::format("--master_addr={}", order.master_addr));
  words.push_back(fmt::format("--master_port={}", port));
  words.emplace_back("--scheduler=none");
  words.emplace_back("--one_of_hosts");
  if (listener) words.push_back(fmt::format("--listener_fd={}", *listener));
  words.emplace_back("--");
  words.insert(words.end(), order.program.begin(), order.program.end());
  return words;
}

}  // namespace dtrun::launcher
