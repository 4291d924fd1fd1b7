// WorkerGroup: the ranks of one round on this node, from their start until no process of theirs is
// left: spawning, the job page, who failed first, ending them in steps, sweeping what they left
// behind. Tells the agent through the GuardLink; its last word is GroupEnd. Lives in the guard, on
// its EventLoop; used once.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "dtrun/base/child_process.h"
#include "dtrun/base/error.h"
#include "dtrun/base/event_loop.h"
#include "dtrun/base/kill_ladder.h"
#include "dtrun/rendezvous/job_page.h"
#include "error_folder.h"
#include "guard_link.h"
#include "launch_plan.h"
#include "leftovers.h"
#include "output.h"
#include "output_drain.h"
#include "rank_watch.h"

namespace dtrun::launcher {

/// What the groups of all rounds share; the guard owns it.
struct GroupSurroundings {
  const LaunchPlan& plan;
  const ErrorFolder& errors;
  base::EventLoop& loop;
  GuardLink& link;
  Output& output;
};

class WorkerGroup {
 public:
  /// @param on_end called after GroupEnd has been sent; must not destroy the group at once
  WorkerGroup(const GroupSurroundings& surroundings, base::EventLoop::Callback on_end);
  ~WorkerGroup();
  WorkerGroup(const WorkerGroup&) = delete;
  WorkerGroup& operator=(const WorkerGroup&) = delete;

  void start(const StartOrder& order);
  int round() const { return order_.round; }
  void stop(const StopOrder& order);
  /// A child of this process has been reaped.
  void on_exit(pid_t pid, const base::ExitStatus& status);
  /// The agent has gone: nothing is waited for.
  void kill_now() { ladder_.kill_now(); }

 private:
  struct Rank {
    base::ChildProcess process;
    int pid = 0;
    std::optional<RankEnd> end;
    rendezvous::RankState state_at_end = rendezvous::RankState::kNone;
  };

  rendezvous::WorkerEnv worker_env(int local_rank) const;
  void start_rank(int local_rank);
  void on_spawn_failure(int local_rank, const base::Error& error);
  void record_end(int local_rank, Rank& rank, const base::ExitStatus& status);
  void decide();
  void wait_for_root();
  const Rank* first_to_fail() const;
  const Rank* victim_of_a_clean_exit() const;
  void end_group_for(const Rank& rank);
  void look_for_missing_ranks();
  void end_group_for_missing(const RankView& exited, const std::string& text);
  RankView view(int local_rank) const;
  std::vector<RankView> views() const;
  void on_ladder_step(int signal_number);
  void finish();
  void on_unkillable();
  void drain();
  bool succeeded() const;
  void report();

  const LaunchPlan& plan_;
  const ErrorFolder& errors_;
  base::EventLoop& loop_;
  GuardLink& link_;
  Output& output_;
  base::EventLoop::Callback on_end_;
  rendezvous::JobPage page_;
  base::KillLadder ladder_;
  Leftovers leftovers_;
  OutputDrain drain_;
  base::Timer patience_;
  StartOrder order_;
  std::vector<Rank> ranks_;
  std::unordered_map<pid_t, int> by_pid_;
  int alive_ = 0;
  int ends_ = 0;
  int last_signal_ = 0;
  int unkillable_ = 0;
  bool deciding_ = false;
  bool waiting_for_root_ = false;
  bool finishing_ = false;
};

}  // namespace dtrun::launcher
