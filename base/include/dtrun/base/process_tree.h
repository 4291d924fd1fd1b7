// What hangs below this process: becoming the one that orphaned descendants come back to
// (subreaper), listing and ending them. A descendant cannot leave: when its parent dies it becomes
// a direct child here, whatever session it made for itself.
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

/// Has the kernel continue this process, should it be stopped (SIGSTOP), when the thread that
/// forked it ends: a stopped one would otherwise outlive its parent for ever. Of use until exec,
/// fork or a change of user or capabilities.
/// @throws Error kSystem
void continue_when_parent_dies();

/// Signals the group that `leader`, a child that is not reaped yet, was started in, and the child
/// itself where it has gone over to another group: its number is still its own. One that goes over
/// in that moment may get it twice.
void signal_process_group(pid_t leader, int signal_number);

/// Whether this child, which is not reaped yet, has ended.
bool has_ended(pid_t child);

/// Until this child has ended, which is not reaped by that, or the deadline. Returns has_ended().
bool await_end(pid_t child, Deadline deadline);

/// Whether it is this process's parent, or one of the parent's.
bool is_above(pid_t pid);

/// The direct children of all threads of this process, adopted and ended ones included.
/// @throws Error kSystem where the kernel does not list them (CONFIG_PROC_CHILDREN)
std::vector<pid_t> child_pids();

/// Whether there is any, adopted and ended ones included.
bool has_children();

/// Kills (SIGKILL) and reaps every child, and the children that come back to us by that, until none
/// is left but `spare`. Blocks. Returns how many would not die before the deadline.
int kill_descendants(const std::vector<pid_t>& spare, Deadline deadline);

/// Reaps every child that ends, adopted ones included, and tells which. For a process whose
/// children are all of its own making: never for a library inside somebody's program.
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
