// The keeper: the process between agent and guard, in a session of its own, which only waits for
// their ends. It reaps what the guard leaves when it dies, so agent and guard may die in the same
// instant. It resumes a guard that was stopped. GuardHandle is the agent's handle on both.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "dtrun/base/deadline.h"
#include "dtrun/base/exit_status.h"
#include "dtrun/base/unique_fd.h"
#include "output/log_folder.h"
#include "plan/launch_plan.h"
#include "ranks/guard_link.h"

namespace dtrun::launcher {

struct GuardEnd {
  base::ExitStatus status;
  int unkillable = 0;  ///< processes of the job that SIGKILL did not end
};

class GuardHandle {
 public:
  /// Forks the keeper, which forks the guard; without exec, so before this process has a thread or
  /// an event loop. @throws Error kSystem;
  /// kUnavailable: the containment that was asked for by name cannot be had
  static GuardHandle start(const LaunchPlan& plan, const LogFolder& errors);

  /// Its end is the guard's.
  GuardLink& link() { return link_; }
  /// For a guard that does not follow an order: the keeper ends it, and all below it. False when
  /// there is no keeper any more.
  bool kill();
  /// Once the link has ended: waits until the keeper has ended what the guard has left. Without a
  /// keeper this process does it. @param not_ours children of this process that it must spare then
  GuardEnd wait(const std::vector<pid_t>& not_ours);
  /// Lets the guard end with all that is below it, and waits for that.
  void end(const std::vector<pid_t>& not_ours);

 private:
  GuardHandle(pid_t keeper, base::UniqueFd channel, GuardLink link);
  base::ExitStatus reap_keeper();
  void receive_greeting();

  pid_t keeper_;
  base::UniqueFd channel_;  // closed: this process has no more use for the guard, or has died
  GuardLink link_;
  bool greeted_ = false;
  std::string folder_;  // the containment's, which this process removes if the others are dead
};

}  // namespace dtrun::launcher
