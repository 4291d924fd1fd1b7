// JobOutcome: all that the agent learnt about a job by its end, and what follows from it: who is to
// blame, and the exit code. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "dtrun/rendezvous/failure_report.h"
#include "guard_link.h"
#include "node_protocol.h"

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
  int round = 0;  ///< the last one of this node; all that follows is of it
  int base_rank = 0;
  std::vector<RankOutcome> ranks;
  std::optional<SpawnOutcome> spawn_failure;
  std::optional<RankEnd> missing_rank;  ///< exited while others needed it
  std::string missing_cause;
  std::optional<JobFailure> failed_elsewhere;
  int stop_signal = 0;  ///< the signal by which the operator stopped the job
  bool guard_died = false;
  std::string guard_end;  ///< how
  GroupEnd group_end;
};

/// The rank for which the job failed; nullptr: none on this node did.
/// Victims of another's failure only where there is nobody else; then deaths by signal before exit
/// codes; then the time in error.json; then the order in which they were seen.
const RankOutcome* root_cause(const JobOutcome& outcome);

int exit_code_of(const JobOutcome& outcome);

}  // namespace dtrun::launcher
