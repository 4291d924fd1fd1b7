// The processes below this one: becoming their subreaper, to which orphaned descendants come back,
// listing and ending them. A descendant cannot leave: when its parent dies it becomes a direct
// child here, even in a session of its own.
#pragma once

#include <sys/types.h>

#include <functional>
#include <vector>

#include "dtrun/base/deadline.h"
#include "dtrun/base/event_loop.h"
#include "dtrun/base/exit_status.h"

namespace dtrun::base {

/// @throws Error kSystem
void become_subreaper();

/// If this process is stopped (SIGSTOP), the kernel continues it when the thread that forked it
/// ends. A stopped process would otherwise outlive its parent for ever. Ends with exec, fork, and a
/// change of user or capabilities.
/// @throws Error kSystem
void continue_when_parent_dies();

/// Signals the process group in which `leader`, a child that is not reaped yet, was started, and
/// the child itself where it has moved to another group: its pid is still its own. A child that
/// moves in that moment may get the signal twice.
void signal_process_group(pid_t leader, int signal_number);

/// Whether this child, which is not reaped yet, has ended.
bool has_ended(pid_t child);

/// Waits until the child has ended or the deadline. Does not reap it. Returns has_ended().
bool await_end(pid_t child, Deadline deadline);

/// Whether it is this process's parent, or an ancestor of the parent.
bool is_above(pid_t pid);

/// The direct children of all threads of this process, adopted and ended ones included.
/// @throws Error kSystem where the kernel does not list them (CONFIG_PROC_CHILDREN)
std::vector<pid_t> child_pids();

/// Whether there is any, adopted and ended ones included.
bool has_children();

/// Kills (SIGKILL) and reaps every child, and the children that come back to us by that, until none
/// is left but `spare`. Blocks. Returns how many would not die before the deadline.
int kill_descendants(const std::vector<pid_t>& spare, Deadline deadline);

/// Reaps every child that ends, adopted ones included, and reports it. For a process that has
/// started all of its children: never for a library inside somebody's program.
class ChildReaper {
 public:
  using Callback = std::function<void(pid_t, ExitStatus)>;
  ChildReaper(EventLoop& loop, Callback on_exit);

  /// Reaps what has ended by now, without waiting for the signal.
  void reap();

 private:
  Callback on_exit_;
  SignalWatch watch_;
};

}  // namespace dtrun::base
