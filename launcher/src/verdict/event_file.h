// EventFile: --events FILE, what happens to the job on this node, one JSON object in each line:
// docs/output.md lists them. Used by one thread.
#pragma once

#include <boost/json/object.hpp>
#include <string>

#include "dtrun/base/unique_fd.h"
#include "plan/launch_plan.h"
#include "verdict/job_outcome.h"

namespace dtrun::launcher {

class EventFile {
 public:
  /// Appends to the file that --events names; nothing without it. @throws Error kUsage where the
  /// file cannot be opened
  explicit EventFile(const LaunchPlan& plan);

  void job_began();
  /// Also a restart: `restarts` counts them.
  void round_began(const JobOutcome& outcome, int world_size);
  /// All ranks of this node run.
  void ranks_started(const JobOutcome& outcome, const Spawned& spawned);
  void rank_ended(const JobOutcome& outcome, const RankEnd& end);
  /// The first failure of this node in the round.
  void failed(const JobOutcome& outcome, const rendezvous::rounds::JobFailure& failure);
  void round_ended(const JobOutcome& outcome, bool well);
  void job_ended(const JobOutcome& outcome, int exit_code);

 private:
  /// One write(): lines of several agents do not mix in a file that they share. The first error is
  /// told, and ends the writing.
  void write(std::string_view event, const JobOutcome* outcome, boost::json::object facts);

  const LaunchPlan& plan_;
  const std::string host_;
  base::UniqueFd file_;
};

}  // namespace dtrun::launcher
