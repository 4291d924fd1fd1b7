// Containment: what, beside the reapers (agent, keeper and guard are subreapers, one below the
// other), makes sure that no process of the job is left. Chosen once, by the keeper before it
// forks the guard. docs/launching.md says who dies with whom.
#pragma once

#include <optional>
#include <string>

#include "dtrun/base/deadline.h"
#include "options/options.h"
#include "ranks/job_cgroup.h"
#include "ranks/pid_namespace.h"

namespace dtrun::launcher {

/// How long processes may take to die of SIGKILL before we say so and go on without them.
inline constexpr base::Deadline::Duration kKillPatience = std::chrono::seconds(10);

class Containment {
 public:
  /// kAuto: a cgroup where one can be made, else the reapers alone. kNamespace: as kAuto, and a pid
  /// namespace: the next child of this process is its first, and has to enter() it.
  /// @throws Error kUnavailable when what was asked for by name cannot be had
  static Containment choose(ContainmentWish wish);

  bool has_namespace() const { return namespace_.has_value(); }
  /// Of the guard, before all else. @throws Error kUnavailable
  void enter() const;
  /// The number by which a child of the guard is known to all but the ranks.
  pid_t number_outside(pid_t pid, int pidfd) const;

  /// With its limits.
  std::string describe() const;
  /// The cgroup that the ranks of a round are born into; closed: none. @throws Error kSystem
  base::UniqueFd make_birthplace() const;
  /// Of a round that has ended.
  void remove_birthplace() const;
  /// SIGKILL to all ranks and to all that they have started, where there is a way to reach them at
  /// once; the reapers end whoever is left.
  void kill() const;
  /// Kills, and leaves nothing behind in the file system. May be repeated.
  void remove(base::Deadline deadline) const;
  /// What remove() removes, for who has to do it instead; empty: nothing.
  std::string folder() const { return cgroup_ ? cgroup_->folder() : ""; }

 private:
  void make_namespace();

  std::optional<JobCgroup> cgroup_;
  std::optional<PidNamespace> namespace_;
  std::string why_no_cgroup_;
};

}  // namespace dtrun::launcher
