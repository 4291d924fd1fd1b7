// LocalJob: a job of dtrun that runs on this machine, as others see it: its dtrun by /proc, what
// its ranks do by the job page, which the dtrun and the ranks share. Only the job's user, and root,
// can open that. Nothing is asked of the job, so one that hangs is seen as well. A rank may have
// written anything into the page: texts are made plain, and a number counts as a rank's process
// only where that is a descendant of the job's guard.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dtrun/rendezvous/job_page.h"

namespace dtrun::jobs {

struct LocalRank {
  int rank = -1;  ///< global
  int local_rank = 0;
  pid_t pid = 0;  ///< here, whatever it is in the rank's own pid namespace; 0: no such process
  rendezvous::RankState state = rendezvous::RankState::kNone;
  bool is_stopped = false;                              ///< by a signal
  std::optional<rendezvous::HistoryEntry> newest = {};  ///< its last operation
};

struct LocalJob {
  pid_t pid = 0;           ///< of the dtrun that was started
  pid_t guard = 0;         ///< the ranks' parent
  std::string id = {};     ///< TORCHELASTIC_RUN_ID; empty: no rank runs
  std::string node = {};   ///< GROUP_RANK, as the ranks were told
  std::string nodes = {};  ///< GROUP_WORLD_SIZE
  std::string world = {};  ///< WORLD_SIZE
  std::chrono::seconds age{0};
  std::string command = {};
  std::string cause = {};  ///< of its failure; empty: none
  std::string round = {};  ///< TORCHELASTIC_RESTART_COUNT
  std::shared_ptr<const rendezvous::JobPage> page = nullptr;
  std::vector<LocalRank> ranks = {};
};

/// Those whose pages this user may open, by pid.
std::vector<LocalJob> local_jobs();

/// "in all_reduce #41 of group 'world' at train.cc:212 for 3.2 s, waits for rank 1".
std::string describe(const LocalRank& rank);

}  // namespace dtrun::jobs
