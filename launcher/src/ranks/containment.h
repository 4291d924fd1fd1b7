// Containment: what, beside the reapers (agent, keeper and guard are subreapers, one below the
// other), makes sure that no process of the job is left. Chosen once, by the keeper before it
// forks the guard, and proven while the guard gets ready. docs/launching.md says who dies with
// whom.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "dtrun/base/deadline.h"
#include "dtrun/base/unique_fd.h"
#include "options/options.h"
#include "ranks/job_cgroup.h"
#include "ranks/own_cgroup.h"
#include "ranks/pid_namespace.h"

namespace dtrun::launcher {

/// How long processes may take to die of SIGKILL before dtrun reports them and goes on.
inline constexpr base::Deadline::Duration kKillPatience = std::chrono::seconds(10);

class Containment {
 public:
  /// kAuto: a cgroup where one can be made, else the reapers alone. kNamespace: as kAuto, and a pid
  /// namespace: the next child of this process is its first process, and has to enter() it.
  /// With kAuto prove() has to follow. @throws Error kUnavailable when a containment that was named
  /// cannot be had
  static Containment choose(ContainmentWish wish);
  /// The keeper, once it has forked the guard: finds out whether processes can be born into the
  /// cgroup, and tells the guard. That takes 0.2 ms, in which the guard gets ready. Without births
  /// the cgroup is removed. @param on_decided called before the guard can start a rank
  void prove(const std::function<void()>& on_decided);
  /// The guard, before its first round: waits for the keeper's word. Without one, because the
  /// keeper is dead or held up, the ranks get no cgroup.
  void await_proof();

  bool has_namespace() const { return namespace_.has_value(); }
  /// The guard calls it before anything else. @throws Error kUnavailable
  void enter() const;
  /// The pid of a child of the guard outside of the pid namespace.
  pid_t number_outside(pid_t pid, int pidfd) const;

  /// One line for the operator: what is in force, and its limits.
  std::string describe() const;
  /// The cgroup that the ranks of a round are born into; closed: none. @throws Error kSystem
  base::UniqueFd make_birthplace();
  /// After the round has ended.
  void remove_birthplace() const;
  /// SIGKILL to all ranks and to all that they have started, as far as they can be reached at once;
  /// the reapers end the rest.
  void kill() const;
  /// Kills, and leaves nothing behind in the file system. May be repeated.
  void remove(base::Deadline deadline) const;
  /// The folder that remove() removes, for another process that has to do it; empty: none.
  std::string folder() const { return cgroup_ ? cgroup_->folder() : ""; }
  /// In which dtrun itself was started.
  const OwnCgroup& own_cgroup() const { return own_; }

 private:
  void make_namespace();
  void refuse_births();

  OwnCgroup own_;
  std::optional<JobCgroup> cgroup_;
  base::Pipe proof_;         // from prove() to await_proof(); closed: nothing is left to be proven
  bool births_ = true;       // ranks are born into the cgroup
  bool first_round_ = true;  // has not begun
  std::optional<PidNamespace> namespace_;
  std::string why_no_cgroup_;
};

}  // namespace dtrun::launcher
