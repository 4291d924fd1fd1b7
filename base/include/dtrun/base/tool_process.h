// ToolProcess: a program that this process runs beside its work, such as ssh: started, watched and
// waited for by Boost.Process v2 on an EventLoop. It is waited for by its own number only, so that
// other children are left alone. Ranks are ChildProcess's (child_process.h says why).
//
// The program leads a session of its own, so that a terminal's Ctrl-C does not reach it, and it
// cannot ask for a password; or a process group, where it shall be stopped by SIGTSTP, which the
// kernel ignores in a session without other groups. It dies by SIGKILL with the thread that has
// started it. It inherits no descriptor but the named ones.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "dtrun/base/event_loop.h"
#include "dtrun/base/exit_status.h"

namespace dtrun::base {

struct ToolCommand {
  enum class Group { kSession, kProcessGroup };

  std::string path;                      ///< no search in PATH; see find_program()
  std::vector<std::string> arguments;    ///< without argv[0], which is the path
  std::vector<std::string> environment;  ///< "NAME=value"
  Group group = Group::kSession;
  std::string folder = {};  ///< working directory; empty: this process's
};

/// Borrowed for the start alone.
struct ToolStreams {
  int in = -1;  ///< -1: /dev/null
  int out = 1;
  int err = 2;
  int inherited = -1;  ///< keeps its number, above 2; -1: none
};

class ToolProcess {
 public:
  using OnEnd = std::function<void(ExitStatus)>;

  /// @param on_end called once, when it has ended and is reaped
  /// @throws SpawnError; then nothing is left of the program
  ToolProcess(EventLoop& loop, const ToolCommand& command, const ToolStreams& streams,
              OnEnd on_end);
  /// Adopts a child that the caller has forked and that leads its process group.
  ToolProcess(EventLoop& loop, pid_t child, OnEnd on_end);
  /// Kills (SIGKILL, its whole process group) and reaps what still runs.
  ~ToolProcess();
  ToolProcess(const ToolProcess&) = delete;
  ToolProcess& operator=(const ToolProcess&) = delete;

  /// -1 once it is reaped: the number may be another program's then.
  pid_t pid() const;
  bool running() const;
  /// By a signal, until SIGCONT.
  bool stopped() const;
  /// To the program alone, or to its process group. Nothing happens when it has ended.
  void signal(int signal_number) const;
  void signal_group(int signal_number) const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace dtrun::base
