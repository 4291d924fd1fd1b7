// JobCgroup: a cgroup (version 2) for the ranks of one dtrun and all that they start, below
// dtrun's own. Needs no controller: only that everything in it can be killed at once, whatever
// forks meanwhile. Keeper and guard share it and stay outside; the last one removes it, or,
// when all were killed, the next dtrun in the same cgroup. Not thread-safe.
#pragma once

#include <string>

#include "dtrun/base/deadline.h"
#include "dtrun/base/unique_fd.h"
#include "ranks/cgroup_place.h"

namespace dtrun::launcher {

class JobCgroup {
 public:
  /// @throws Error kUnavailable that says why there cannot be one here
  static JobCgroup make(const CgroupPlace& place);
  /// Whether a process can be born into it, found out with one. Takes as long as a process lives.
  bool admits_births() const;
  const std::string& folder() const { return folder_; }
  /// Where the ranks of the first round are born: the job's own cgroup.
  base::UniqueFd first_round() const;
  /// A cgroup below for the ranks of a later round; the ones before it go, as far as they are
  /// empty. Ranks are born into it: into one that has been killed they cannot
  /// (base/src/clone_child.h). @throws Error kSystem
  base::UniqueFd make_round() const;
  /// Removes those that are empty.
  void remove_rounds() const;
  /// SIGKILL to every process in it and below, also to those that are just being born.
  void kill() const;

 private:
  JobCgroup(std::string folder, base::UniqueFd fd, base::UniqueFd kill_fd)
      : folder_(std::move(folder)), fd_(std::move(fd)), kill_fd_(std::move(kill_fd)) {}

  std::string folder_;
  base::UniqueFd fd_;
  base::UniqueFd kill_fd_;
};

/// Kills all processes of a JobCgroup, waits until they have ended, and removes it with the cgroups
/// below it. No process may be started in it any more. Nothing happens if it has been removed
/// already.
void remove_job_cgroup(const std::string& folder, base::Deadline deadline);

}  // namespace dtrun::launcher
