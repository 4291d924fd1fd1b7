// Decisions about ranks that end too early, from what the job page says. Pure: the guard reads the
// page and acts.
#pragma once

#include <string>
#include <vector>

#include "dtrun/rendezvous/job_page.h"

namespace dtrun::launcher {

struct RankView {
  int rank = 0;  ///< global
  int pid = 0;
  bool alive = true;
  rendezvous::RankState state = rendezvous::RankState::kNone;  ///< of a dead rank: its last
  std::string operation;  ///< "all_reduce #41 of group 'world'"; empty: none
  int code = 0;           ///< of a dead rank: its exit code
};

/// A rank has exited, and others can now wait for it for ever: why the job has failed, naming both
/// sides. Empty: nobody is seen to wait, and an exit with 0 is nothing wrong.
std::string missing_rank_cause(const std::vector<RankView>& ranks, const RankView& exited);

/// The same, told by a rank that found out by itself and failed for it.
std::string missing_rank_cause_by_victim(const RankView& victim, const RankView& exited);

/// A rank that others have waited for in vain, and that still runs.
std::string late_rank_cause(const RankView& victim, const RankView& late);

}  // namespace dtrun::launcher
