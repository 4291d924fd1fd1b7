// JobOutcome: all that the agent learnt about a job by its end, and what follows from it: who is to
// blame, and the exit code. Of the ranks, what is told is their last round's. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "dtrun/rendezvous/failure_report.h"
#include "dtrun/rendezvous/round_messages.h"
#include "guard_link.h"

namespace dtrun::launcher {

struct RankOutcome {
  RankEnd end;
  std::string error_tail;  ///< last lines of its standard error
  std::string error_file;  ///< where its error.json is; empty: it wrote none
  std::optional<rendezvous::FailureReport> report;
};

struct SpawnOutcome {
  SpawnFailure failure;
  std::string text;
};

struct JobOutcome {
  int max_restarts = 0;
  int restarts = 0;  ///< before the last round
  int round = rendezvous::rounds::kNoRound;
  int group_rank = rendezvous::rounds::kNoNodeRank;
  int base_rank = 0;
  std::vector<RankOutcome> ranks;
  std::optional<SpawnOutcome> spawn_failure;
  std::optional<RankEnd> missing_rank;  ///< exited while others needed it
  std::string missing_cause;
  /// Of this node, as it was told to the others.
  std::optional<rendezvous::rounds::JobFailure> own_failure;
  /// For which the job has ended, where it is another one.
  std::optional<rendezvous::rounds::JobFailure> failed_elsewhere;
  int stop_signal = 0;  ///< the signal by which the operator stopped the job
  bool guard_died = false;
  std::string guard_end;  ///< how
  GroupEnd group_end;

  /// Forgets the ranks of the round before.
  void begin_round(const rendezvous::rounds::Start& start);
  void end_job_for(const rendezvous::rounds::JobFailure& failure);
};

/// The rank for which the job failed; nullptr: none on this node did.
/// Victims of another's failure only where there is nobody else; then deaths by signal before exit
/// codes; then the time in error.json; then the order in which they were seen.
const RankOutcome* root_cause(const JobOutcome& outcome);

int exit_code_of(const JobOutcome& outcome);

}  // namespace dtrun::launcher
