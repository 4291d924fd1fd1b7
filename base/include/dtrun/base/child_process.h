// ChildProcess: a started program, from its start to its reaping. Move-only; the destructor kills
// (SIGKILL, the whole process group) and reaps what still runs. Not thread-safe; start children
// from a thread that lives as long as they shall: the parent-death signal follows the thread.
//
// A child gets: its own session or process group, SIGKILL when its parent dies, no descriptor but
// 0 to 2 and those named, default signal dispositions and an empty mask, and the soft limit of open
// files that is asked for.
//
// How a child is started, and many at once: ChildBirth. This is for ranks: Boost.Process v2, which
// starts other programs (tool_process.h), waits for its own pid, which a subreaper that must reap
// whatever it adopts takes away from it.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dtrun/base/deadline.h"
#include "dtrun/base/error.h"
#include "dtrun/base/exit_status.h"
#include "dtrun/base/unique_fd.h"

namespace dtrun::base {

/// What many children share; made once.
struct ChildCommand {
  std::string path;                      ///< no search in PATH; see find_program()
  std::vector<std::string> arguments;    ///< argv[0] included
  std::vector<std::string> environment;  ///< "NAME=value"
  std::optional<std::size_t> open_files_soft_limit;
  std::string folder = {};  ///< that it works in; empty: this process's
};

/// What is particular to one child.
struct ChildSetup {
  enum class Group { kSession, kProcessGroup };

  std::vector<std::string> environment;  ///< added to the command's; names must not repeat
  int stdin_fd = -1;                     ///< -1: /dev/null
  int stdout_fd = 1;
  int stderr_fd = 2;
  std::vector<int> inherited_fds;  ///< keep their numbers; must be above 2
  Group group = Group::kSession;
  /// With a session: its standard input is a terminal, which becomes the session's.
  bool takes_terminal = false;
  std::vector<int> cpus;           ///< it may run on; empty: on this process's own
  std::optional<int> memory_node;  ///< NUMA node that its memory is taken from first
  int cgroup_fd = -1;              ///< folder of the cgroup2 that it is born into; -1: our own
};

/// kNotFound or kSystem; error_number() is the errno of the step that failed.
class SpawnError : public Error {
 public:
  SpawnError(Error error, int error_number) : Error(std::move(error)) {
    error_number_ = error_number;
  }
};

class ChildProcess {
 public:
  /// Returns when the program runs. @throws SpawnError; then nothing is left of the child
  static ChildProcess spawn(const ChildCommand& command, const ChildSetup& setup);

  /// Whether ChildSetup::cgroup_fd works: tries it. Not into a cgroup that has ever been killed.
  static bool can_be_born_into(int cgroup_fd);

  ChildProcess() = default;
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  ~ChildProcess();

  /// 0 when there is none, or it was reaped.
  pid_t pid() const { return pid_; }
  /// Readable once the child has ended.
  int pidfd() const { return pidfd_.get(); }
  bool running() const { return pid_ != 0; }

  /// Signals the child's process group. Nothing happens when the child has been reaped.
  void signal_group(int signal_number) const;
  /// Reaps the child if it ends before the deadline.
  std::optional<ExitStatus> wait(Deadline deadline);
  /// Says that another object (ChildReaper) has reaped it.
  void mark_reaped();
  /// Gives the child up: the caller has its pid and pidfd now, and reaps it.
  std::pair<pid_t, UniqueFd> release();

 private:
  friend class ChildBirth;
  ChildProcess(pid_t pid, UniqueFd pidfd) : pid_(pid), pidfd_(std::move(pidfd)) {}
  void kill_and_reap() noexcept;

  pid_t pid_ = 0;
  UniqueFd pidfd_;
};

/// Where execvp would find the program. @throws SpawnError with ENOENT, EACCES or EISDIR
std::string find_program(const std::string& name, const std::string& search_path);

}  // namespace dtrun::base
