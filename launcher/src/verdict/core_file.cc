#include "verdict/core_file.h"

#include <fmt/core.h>
#include <glob.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>

namespace dtrun::launcher {
namespace {

bool makes_core(int signal_number) {
  constexpr std::array kDumping = {SIGQUIT, SIGILL,  SIGTRAP, SIGABRT, SIGBUS,
                                   SIGFPE,  SIGSEGV, SIGXCPU, SIGXFSZ, SIGSYS};
  return std::ranges::find(kDumping, signal_number) != kDumping.end();
}

std::string kernel_setting(const char* name) {
  std::ifstream file(fmt::format("/proc/sys/kernel/{}", name));
  std::string line;
  std::getline(file, line);
  return line;
}

/// The newest that was written by then; empty: there is none.
std::string newest_of(const std::string& pattern, std::int64_t ended) {
  ::glob_t found{};
  std::string newest;
  std::int64_t best = 0;
  // It is whole when the rank has ended; a minute is for the clocks of network file systems.
  if (::glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found) == 0)
    for (std::size_t i = 0; i < found.gl_pathc; ++i) {
      struct stat status {};
      const bool is_file = ::stat(found.gl_pathv[i], &status) == 0 && S_ISREG(status.st_mode);
      const std::int64_t written = status.st_mtim.tv_sec;
      if (!is_file || written < best || written + 60 < ended || written > ended + 60) continue;
      best = written;
      newest = found.gl_pathv[i];
    }
  ::globfree(&found);
  return newest;
}

std::string piped_core(const std::string& pattern, pid_t pid) {
  const std::string program = pattern.substr(1, pattern.find(' ') - 1);
  if (program.find("systemd-coredump") != std::string::npos)
    return fmt::format("coredumpctl info {} (systemd-coredump has it)", pid);
  if (program.find("apport") != std::string::npos)
    return "in /var/crash or /var/lib/apport/coredump";
  return fmt::format("{} has it (kernel.core_pattern)", program);
}

std::string why_no_core(const std::string& pattern) {
  rlimit limit{};
  const bool is_limited = ::getrlimit(RLIMIT_CORE, &limit) == 0 && limit.rlim_cur == 0;
  if (is_limited && !pattern.starts_with('|'))
    return "none: the limit of its size is 0 (ulimit -c unlimited, before dtrun)";
  return fmt::format("none was written (kernel.core_pattern is {})",
                     pattern.empty() ? "empty" : pattern);
}

}  // namespace

std::string core_glob(const std::string& pattern, bool uses_pid, const CoreFacts& facts) {
  std::string glob;
  bool has_pid = false;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '%') {
      if (pattern[i] == '*' || pattern[i] == '?' || pattern[i] == '[') glob += '\\';
      glob += pattern[i];
      continue;
    }
    if (++i == pattern.size()) break;  // a single % at the end is dropped
    if (pattern[i] == '%') {
      glob += '%';
    } else if (pattern[i] == 'p' || pattern[i] == 'P') {
      has_pid |= pattern[i] == 'p';
      glob += std::to_string(facts.pid);
    } else if (pattern[i] == 's') {
      glob += std::to_string(facts.signal);
    } else {
      glob += '*';
    }
  }
  return uses_pid && !has_pid ? glob + "." + std::to_string(facts.pid) : glob;
}

std::string describe_core(const CoreFacts& facts) {
  if (!facts.is_dumped && !makes_core(facts.signal)) return "";
  const std::string pattern = kernel_setting("core_pattern");
  if (!facts.is_dumped) return why_no_core(pattern);
  if (pattern.starts_with('|')) return piped_core(pattern, facts.pid);
  const bool uses_pid = kernel_setting("core_uses_pid") == "1";
  const std::string found = newest_of(core_glob(pattern, uses_pid, facts), facts.ended);
  if (found.empty())
    return fmt::format(
        "kernel.core_pattern is {}: in the folder that the rank worked in, or on "
        "another root",
        pattern);
  std::error_code gone;
  const std::filesystem::path whole = std::filesystem::absolute(found, gone);
  return gone ? found : whole.lexically_normal().string();
}

}  // namespace dtrun::launcher
