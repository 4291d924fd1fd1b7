// JobEvents: what happens to the job on this node, told to all who want to know: the file of
// --events and the metrics of --metrics-port. Used by one thread.
#pragma once

#include <string>

#include "verdict/event_file.h"
#include "verdict/metrics.h"

namespace dtrun::launcher {

class JobEvents {
 public:
  /// @param plan must live longer @throws Error kUsage where the events' file cannot be opened
  explicit JobEvents(const LaunchPlan& plan) : file_(plan), metrics_(plan) {}

  void job_began() { file_.job_began(); }
  /// Also a restart: `restarts` counts them.
  void round_began(const JobOutcome& outcome, int world_size) {
    file_.round_began(outcome, world_size);
    metrics_.round_began(outcome, world_size);
  }
  /// All ranks of this node run. @param page the job page; none where no metrics are served
  void ranks_started(const JobOutcome& outcome, const Spawned& spawned, base::UniqueFd page) {
    file_.ranks_started(outcome, spawned);
    metrics_.ranks_started(outcome, spawned, std::move(page));
  }
  /// Long before its end is told, if others run on.
  void rank_gone(const RankGone& gone) { metrics_.rank_gone(gone); }
  void rank_ended(const JobOutcome& outcome, const RankEnd& end) {
    file_.rank_ended(outcome, end);
    metrics_.rank_ended(end);
  }
  /// The first failure of this node in the round.
  void failed(const JobOutcome& outcome, const rendezvous::rounds::JobFailure& failure) {
    file_.failed(outcome, failure);
    metrics_.failed(failure);
  }
  void round_ended(const JobOutcome& outcome, bool well) {
    file_.round_ended(outcome, well);
    metrics_.round_ended(outcome);
  }
  /// No round_ended() follows.
  void guard_died(const JobOutcome& outcome) { metrics_.round_ended(outcome); }
  void job_ended(const JobOutcome& outcome, int exit_code) { file_.job_ended(outcome, exit_code); }

  const Metrics& metrics() const { return metrics_; }

 private:
  EventFile file_;
  Metrics metrics_;
};

}  // namespace dtrun::launcher
