#include "hosts/host_place.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <array>
#include <climits>

#include "dtrun/base/env.h"
#include "dtrun/base/error.h"
#include "dtrun/base/unique_fd.h"
#include "options/option_names.h"

namespace dtrun::launcher {

using base::Error;
using base::ErrorCode;

namespace {

// A command line for several nodes must name a port. The true one is known last, and comes by
// standard input.
constexpr int kSomePort = 29500;

}  // namespace

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

std::vector<std::string> node_arguments(const HostOrder& order, const HostNode& node,
                                        std::optional<int> listener) {
  std::vector<std::string> words = order.options;
  words.push_back(fmt::format("--nnodes={}", order.node_count));
  words.push_back(fmt::format("--node_rank={}", node.node_rank));
  words.push_back(fmt::format("--nproc_per_node={}", node.ranks));
  words.push_back(fmt::format("--master_addr={}", order.master_addr));
  words.push_back(fmt::format("--master_port={}", kSomePort));
  words.emplace_back("--scheduler=none");
  words.emplace_back("--one_of_hosts");
  if (listener) words.push_back(fmt::format("--listener_fd={}", *listener));
  words.insert(words.end(), order.program.begin(), order.program.end());
  return words;
}

std::optional<WordOfRelay> await_port_of_first() {
  std::string line;
  while (!line.ends_with('\n')) {
    char letter = 0;
    const ssize_t got = ::read(STDIN_FILENO, &letter, 1);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return std::nullopt;
    line += letter;
  }
  base::UniqueFd start_sign(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  const base::UniqueFd nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!start_sign || !nothing || ::dup2(nothing.get(), STDIN_FILENO) < 0)
    throw base::system_error("open /dev/null");
  const auto port = base::parse_integer(std::string_view(line).substr(0, line.size() - 1));
  if (!port || *port < 0 || *port > UINT16_MAX)
    throw Error(ErrorCode::kProtocol, "a node's dtrun is started by dtrun --hosts alone",
                fmt::format("'{}' on standard input is no port", line.substr(0, line.size() - 1)),
                "dtrun --hosts=a:4,b:4 PROGRAM");
  return WordOfRelay{static_cast<std::uint16_t>(*port), std::move(start_sign)};
}

}  // namespace dtrun::launcher
