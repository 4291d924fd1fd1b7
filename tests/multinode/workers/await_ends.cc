// await_ends SECONDS TEXT...: waits until no process of this pid namespace, but this one, has one
// of the texts in its command line. Told by the ends themselves, not by looking again and again.
// Not within the time: says who is left, and exits with 1.
#include <dirent.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "dtrun/base/deadline.h"
#include "dtrun/base/unique_fd.h"

namespace {

using dtrun::base::Deadline;
using dtrun::base::UniqueFd;

// One that has ended has none.
std::string command_line_of(const std::string& pid) {
  std::ifstream file("/proc/" + pid + "/cmdline", std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  std::replace(text.begin(), text.end(), '\0', ' ');
  return text;
}

struct Process {
  std::string name;
  UniqueFd end;
};

std::vector<Process> processes_with(const std::vector<std::string>& texts) {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc"), ::closedir);
  const std::string self = std::to_string(::getpid());
  std::vector<Process> found;
  while (const dirent* entry = folder ? ::readdir(folder.get()) : nullptr) {
    const std::string pid = entry->d_name;
    if (pid.find_first_not_of("0123456789") != std::string::npos || pid == self) continue;
    // Before its line is read: the number cannot become another's.
    UniqueFd end(static_cast<int>(::syscall(SYS_pidfd_open, std::stoi(pid), 0)));
    const std::string line = command_line_of(pid);
    const bool meant = std::any_of(texts.begin(), texts.end(), [&](const std::string& text) {
      return line.find(text) != std::string::npos;
    });
    if (end && meant) found.push_back({pid + ": " + line, std::move(end)});
  }
  return found;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    fmt::print(stderr, "usage: await_ends SECONDS TEXT...\n");
    return 2;
  }
  const Deadline deadline = Deadline::after(std::chrono::seconds(std::atoi(argv[1])));
  const std::vector<std::string> texts(argv + 2, argv + argc);
  while (true) {
    const std::vector<Process> left = processes_with(texts);
    if (left.empty()) return 0;
    pollfd ended{left.front().end.get(), POLLIN, 0};
    if (::poll(&ended, 1, deadline.poll_timeout_ms()) != 0) continue;
    for (const Process& process : left) fmt::print("{}\n", process.name);
    return 1;
  }
}
