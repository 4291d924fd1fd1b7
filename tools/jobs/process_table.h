// ProcessTable: the processes that /proc shows at one moment: who is whose parent, and which number
// each has in its own pid namespace. Not what they do: that changes.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace dtrun::jobs {

class ProcessTable {
 public:
  ProcessTable();

  /// All, ascending.
  std::vector<pid_t> pids() const;
  /// 0: it has none here, or is not there.
  pid_t parent(pid_t pid) const;
  /// Whether it is a child of `above`, or of such a child.
  bool is_below(pid_t pid, pid_t above) const;
  /// The process below `above` that has this number in its own pid namespace.
  std::optional<pid_t> below_with_number(pid_t above, pid_t number) const;

 private:
  struct Process {
    pid_t parent = 0;
    pid_t own_number = 0;  ///< as the process itself sees it
  };
  std::map<pid_t, Process> processes_;
};

/// "/proc/PID/NAME".
std::string proc_path(pid_t pid, const char* name);
/// The letter of /proc/PID/stat: 'T' is stopped; 0: it has gone.
char state_letter(pid_t pid);
std::chrono::seconds age_of(pid_t pid);
/// Texts that end with a NUL, as the kernel has arguments and variables. Empty: the process has
/// gone, or is another user's.
std::vector<std::string> texts_of(const std::string& path);
/// For a terminal's line and for JSON: neither control characters nor what is no UTF-8.
std::string plain(const std::string& text);

}  // namespace dtrun::jobs
