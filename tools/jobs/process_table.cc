#include "jobs/process_table.h"

#include <fmt/core.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "dtrun/base/utf8.h"

namespace dtrun::jobs {

namespace fs = std::filesystem;

namespace {

/// What stands behind the name in /proc/PID/stat: the state first.
std::vector<std::string> stat_of(pid_t pid) {
  std::ifstream file(proc_path(pid, "stat"));
  // A name may have line breaks. A process that ends meanwhile is no error, but an iterator of the
  // buffer would throw one.
  std::string line;
  std::getline(file, line, '\0');
  const std::size_t end = line.rfind(')');
  std::vector<std::string> fields;
  if (end == std::string::npos) return fields;
  std::istringstream rest(line.substr(end + 1));
  for (std::string field; rest >> field;) fields.push_back(field);
  return fields;
}

/// Of "NSpid: 812 3", the last.
pid_t own_number_of(pid_t pid) {
  std::ifstream file(proc_path(pid, "status"));
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("NSpid:")) continue;
    return std::atoi(line.c_str() + line.find_last_of(" \t") + 1);
  }
  return pid;
}

}  // namespace

ProcessTable::ProcessTable() {
  std::error_code none;
  for (fs::directory_iterator entry("/proc", none); !none && entry != fs::directory_iterator();
       entry.increment(none)) {
    const pid_t pid = std::atoi(entry->path().filename().c_str());
    const std::vector<std::string> fields = pid > 0 ? stat_of(pid) : std::vector<std::string>();
    if (fields.size() < 2) continue;
    processes_[pid] = {std::atoi(fields[1].c_str()), own_number_of(pid)};
  }
}

std::vector<pid_t> ProcessTable::pids() const {
  std::vector<pid_t> all;
  for (const auto& [pid, process] : processes_) all.push_back(pid);
  return all;
}

pid_t ProcessTable::parent(pid_t pid) const {
  const auto found = processes_.find(pid);
  return found == processes_.end() ? 0 : found->second.parent;
}

// A table that was read while processes came and went may even have a circle.
bool ProcessTable::is_below(pid_t pid, pid_t above) const {
  std::size_t steps = 0;
  for (pid_t one = parent(pid); one > 0 && steps <= processes_.size(); one = parent(one), ++steps)
    if (one == above) return true;
  return false;
}

std::optional<pid_t> ProcessTable::below_with_number(pid_t above, pid_t number) const {
  for (const auto& [pid, process] : processes_)
    if (process.own_number == number && is_below(pid, above)) return pid;
  return std::nullopt;
}

std::string proc_path(pid_t pid, const char* name) {
  return fmt::format("/proc/{}/{}", pid, name);
}

char state_letter(pid_t pid) {
  const std::vector<std::string> fields = stat_of(pid);
  return fields.empty() ? '\0' : fields[0][0];
}

std::chrono::seconds age_of(pid_t pid) {
  constexpr std::size_t kStart = 19;  // field 22
  const std::vector<std::string> fields = stat_of(pid);
  if (fields.size() <= kStart) return {};
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  const long long start = std::atoll(fields[kStart].c_str()) / ::sysconf(_SC_CLK_TCK);
  return std::chrono::seconds(std::max<long long>(0, now.tv_sec - start));
}

std::vector<std::string> texts_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<std::string> texts;
  for (std::string text; std::getline(file, text, '\0');) texts.push_back(text);
  return texts;
}

std::string plain(const std::string& text) {
  std::string line = base::as_utf8(base::without_controls(text));
  std::ranges::replace_if(
      line, [](char c) { return c == '\n' || c == '\r' || c == '\t'; }, ' ');
  return line;
}

}  // namespace dtrun::jobs
