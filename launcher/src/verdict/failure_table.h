// The failure table, in torchrun's layout, and the last lines of the rank that failed first. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plan/launch_plan.h"
#include "verdict/job_outcome.h"

namespace dtrun::launcher {

/// The ranks that did not end well, as far as this node knows, by their numbers, and the first of
/// them, of which only another node's report may be known.
struct FailedRanks {
  std::vector<rendezvous::rounds::WorkerEnd> ends;
  rendezvous::rounds::WorkerEnd root;
};

/// How many more did not end well: each node reports kMostWorkerEnds at the most.
int unlisted(const std::vector<rendezvous::rounds::WorkerEnd>& ends);

/// nullopt: no rank of this node is to blame.
std::optional<FailedRanks> failed_ranks(const JobOutcome& outcome, const std::string& host);

/// Empty when no rank of this node is to blame.
std::string failure_table(const LaunchPlan& plan, const JobOutcome& outcome,
                          const std::string& host);

}  // namespace dtrun::launcher
