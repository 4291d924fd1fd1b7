// ChildBirth: a child between its clone and its execve. A caller that starts many can have several
// of them at once, so that other CPUs execute the last ones while this one clones the next.
//
// Starting is clone(CLONE_VM | CLONE_FILES | CLONE_PIDFD | CLONE_CHILD_CLEARTID): the child borrows
// this process' memory until it has exec'd, which the kernel reports by clearing a word, and its
// table of descriptors until it has copied the low ones. So the cost grows with neither memory nor
// descriptors (give it low numbers), and a failed exec comes back as plain errno. It is a vfork
// whose parent goes on: on two CPUs 256 programs start in 0.85 of vfork's time (bench/launch_bench).
// Boost.Process waits for each child's exec before the next one is started, too.
#pragma once

#include <memory>

#include "dtrun/base/child_process.h"

namespace dtrun::base {

/// Not thread-safe. Start children from a thread that lives as long as they shall: the parent-death
/// signal follows the thread.
class ChildBirth {
 public:
  /// The descriptors that `setup` names must stay open until finish(). @throws SpawnError
  ChildBirth(ChildCommand command, ChildSetup setup);
  ChildBirth(ChildBirth&&) noexcept;
  ChildBirth& operator=(ChildBirth&&) = delete;
  /// Kills and reaps what has not been finished.
  ~ChildBirth();

  /// Call once; returns when it runs. @throws SpawnError; then nothing is left of the child
  ChildProcess finish();

 private:
  struct State;
  std::unique_ptr<State> state_;  ///< null: finished
};

}  // namespace dtrun::base
