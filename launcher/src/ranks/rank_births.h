// RankBirths: the ranks between their clone and their exec, a few at a time. While other CPUs
// execute the last ones the guard clones the next: on two CPUs 256 ranks start in 0.85 of the time
// that one after the other takes.
#pragma once

#include <deque>
#include <functional>

#include "dtrun/base/child_birth.h"
#include "dtrun/rendezvous/job_page.h"
#include "dtrun/rendezvous/worker_env.h"
#include "output/log_folder.h"
#include "output/output_thread.h"
#include "plan/launch_plan.h"
#include "ranks/guard_link.h"

namespace dtrun::launcher {

class RankBirths {
 public:
  using OnBorn = std::function<void(int local_rank, base::ChildProcess)>;

  /// The group of a rank without a terminal of its own: a process group, or, where ranks get as
  /// much of the CPUs as other processes do only so, a session. Called by the guard, whose session
  /// the ranks are in otherwise. @param ranks of this guard
  static base::ChildSetup::Group usual_group(int ranks);

  /// What the ranks of a round have in common.
  struct Place {
    const LaunchPlan& plan;
    const LogFolder& errors;
    const StartOrder& order;
    rendezvous::JobPage& page;
    base::ChildSetup::Group group;  ///< usual_group(), asked before there is a round
  };
  /// @param on_born called for each, in the order of begin()
  RankBirths(Place place, OnBorn on_born) : place_(place), on_born_(std::move(on_born)) {}

  /// @param birthplace the cgroup; invalid: this process's
  /// @param ends of the rank's streams, which the guard keeps open until it has them
  /// @throws base::SpawnError about whose_turn()
  void begin(int local_rank, const base::UniqueFd& birthplace, RankEnds ends);
  /// @throws base::SpawnError about whose_turn(); the others are still to be finished
  void finish();
  /// The rank that an error is about.
  int whose_turn() const { return whose_turn_; }

 private:
  struct Birth {
    int local_rank;
    RankEnds ends;
    base::ChildBirth child;
  };

  rendezvous::WorkerEnv worker_env(int local_rank) const;
  void finish_oldest();

  const Place place_;
  OnBorn on_born_;
  std::deque<Birth> births_;
  int whose_turn_ = 0;
};

}  // namespace dtrun::launcher
