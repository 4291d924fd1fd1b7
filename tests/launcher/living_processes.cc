#include "launcher/living_processes.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace dtrun::launcher {
namespace {

// "cmdline" or "environ" of the process.
std::string words_of(pid_t pid, const std::string& which) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/" + which);
  std::ostringstream text;
  text << file.rdbuf();
  std::string result = text.str();
  std::replace(result.begin(), result.end(), '\0', ' ');
  return result;
}

}  // namespace

std::string unique_token() {
  static int count = 0;
  return "86400." + std::to_string(::getpid()) + std::to_string(100 + count++);
}

std::vector<pid_t> processes_with(const std::string& token) {
  std::vector<pid_t> result;
  std::error_code vanished;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", vanished)) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const pid_t pid = std::stoi(name);
    if (words_of(pid, "cmdline").find(token) != std::string::npos ||
        words_of(pid, "environ").find(token) != std::string::npos)
      result.push_back(pid);
  }
  return result;
}

bool all_gone_within(const std::string& token, std::chrono::milliseconds limit) {
  const auto until = std::chrono::steady_clock::now() + limit;
  // A process may also leave by executing something else, which no descriptor tells: look again.
  constexpr int kLookAgainMs = 50;
  while (true) {
    // A process that has ended but is not reaped has an empty command line and environment: it does
    // not count.
    const std::vector<pid_t> pids = processes_with(token);
    if (pids.empty()) return true;
    if (std::chrono::steady_clock::now() >= until) return false;
    const int pidfd = static_cast<int>(::syscall(SYS_pidfd_open, pids[0], 0));
    if (pidfd < 0) continue;
    pollfd ended{pidfd, POLLIN, 0};
    ::poll(&ended, 1, kLookAgainMs);
    ::close(pidfd);
  }
}

std::string describe_processes_with(const std::string& token) {
  std::string result;
  for (const pid_t pid : processes_with(token))
    result += std::to_string(pid) + ": " + words_of(pid, "cmdline") + "\n";
  return result;
}

std::size_t most_memory_of(pid_t pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmHWM:")) return std::stoul(line.substr(6)) << 10;
  return 0;
}

std::vector<pid_t> children_of(pid_t pid) {
  const std::string text = std::to_string(pid);
  std::ifstream file("/proc/" + text + "/task/" + text + "/children");
  std::vector<pid_t> result;
  for (pid_t child; file >> child;) result.push_back(child);
  return result;
}

LauncherProcesses processes_of(pid_t agent) {
  LauncherProcesses result{agent, 0, 0};
  for (const pid_t keeper : children_of(agent)) {
    result.keeper = keeper;
    // It has had another child, which only tried whether it could live.
    for (const pid_t child : children_of(keeper))
      if (words_of(child, "comm") == "dtrun-guard\n") result.guard = child;
  }
  return result;
}

LauncherProcesses wait_for_guard(pid_t agent) {
  LauncherProcesses result{agent, 0, 0};
  const auto running = [agent] {
    const std::string stat = words_of(agent, "stat");
    return !stat.empty() && stat.find(") Z ") == std::string::npos;
  };
  while (result.guard == 0 && running()) result = processes_of(agent);
  return result;
}

pid_t rank_called(pid_t own_number, pid_t agent) {
  for (const pid_t child : children_of(wait_for_guard(agent).guard)) {
    std::istringstream lines(words_of(child, "status"));
    for (std::string line; std::getline(lines, line);)
      if (line.starts_with("NSpid:") && line.ends_with('\t' + std::to_string(own_number)))
        return child;
  }
  return 0;
}

}  // namespace dtrun::launcher
