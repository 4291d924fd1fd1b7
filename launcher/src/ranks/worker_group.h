// WorkerGroup: the ranks of one round on this node, from their start until no process of theirs is
// left: spawning, the job page, who failed first, ending them in steps, sweeping what they left
// behind. The table of supervision.h decides what is done when; this class carries it out. It
// reports to the agent through the GuardLink; its last message is GroupEnd. Lives in the guard, on
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
#include "dtrun/rendezvous/job_page.h"
#include "output/log_folder.h"
#include "output/output_flush.h"
#include "output/output_thread.h"
#include "plan/launch_plan.h"
#include "ranks/containment.h"
#include "ranks/flight_files.h"
#include "ranks/guard_link.h"
#include "ranks/leftovers.h"
#include "ranks/oom_counter.h"
#include "ranks/progress_watch.h"
#include "ranks/rank_births.h"
#include "ranks/rank_watch.h"
#include "ranks/signal_relay.h"
#include "ranks/stdin_copies.h"
#include "ranks/supervision.h"

namespace dtrun::launcher {

/// What the groups of all rounds share; the guard owns it.
struct GroupSurroundings {
  const LaunchPlan& plan;
  const LogFolder& errors;
  Containment& containment;
  base::EventLoop& loop;
  GuardLink& link;
  OutputThread& output;
  SignalRelay& relay;
  StdinCopies& stdin_copies;
};

/// Writes the losses of output into the guard's last message about a round.
void tell_losses(const OutputState& output, GroupEnd& end);

class WorkerGroup {
 public:
  /// @param on_end called after GroupEnd has been sent; must not destroy the group at once
  WorkerGroup(const GroupSurroundings& surroundings, base::EventLoop::Callback on_end);
  WorkerGroup(const WorkerGroup&) = delete;
  WorkerGroup& operator=(const WorkerGroup&) = delete;

  void start(const StartOrder& order);
  int round() const { return order_.round; }
  void stop(const StopOrder& order);
  void pass(const SignalOrder& order);
  /// Stops the ranks (SIGSTOP) until resume(), or until they are to end. Ranks that are ending go
  /// on with that: only phases of ending have a time, so no time is lost by a pause.
  void pause();
  void resume();
  /// A child of this process has been reaped.
  void on_exit(pid_t pid, const base::ExitStatus& status);
  /// The lease has run out: kills the ranks that live, and tells the agent. Ranks that have ended
  /// keep their end; what they have left behind is killed.
  void fence();
  /// The agent has gone: no grace.
  void kill_now() { happen(supervision::Event::kStopNow); }

  /// All ranks ended with 0, and nobody had stopped them.
  bool succeeded() const;

 private:
  struct Rank {
    pid_t pid = 0;
    pid_t number_outside = 0;  ///< for all reports; differs from pid in a pid namespace only
    bool told_to_end = false;  ///< this process signalled it to end while it lived
    std::optional<RankEnd> end;
    double ended = 0;  ///< seconds since the epoch
    rendezvous::RankState state_at_end = rendezvous::RankState::kNone;
  };

  // The rank because of which the round ends. Where it still runs: found_by, the rank that found it
  // out, whose code counts.
  struct Blame {
    int local_rank = 0;
    std::string text;  // why, where the rank's end does not show it
    std::optional<RankEnd> found_by = {};
  };

  void happen(supervision::Event event);
  void carry_out(supervision::Action action);
  void set_timer();
  base::Deadline::Duration grace() const;
  void settle();

  void spawn();
  void begin_rank(int local_rank, const base::UniqueFd& birthplace, RankBirths& births);
  void register_rank(int local_rank, base::ChildProcess child);
  void tell_start_failure();
  void show_status();
  void record_end(int local_rank, Rank& rank, const base::ExitStatus& status);
  void on_stall(const rendezvous::FlightFinding& stall, int times);
  /// The first of them that runs on this node; -1: none.
  int first_here(const std::vector<int>& global_ranks) const;
  void end_stalled(const rendezvous::FlightFinding& stall, int signal_number);
  std::vector<std::string> operations_of_failed() const;
  void post_look();
  void look();
  bool somebody_can_be_missed() const;
  void look_for_missing_ranks();
  bool is_still_so(const std::string& suspicion);
  const Rank* first_to_fail() const;
  const Rank* victim_of_a_clean_exit() const;
  const Rank* rank_of(int global_rank) const;
  int late_rank(const Rank& victim) const;
  void find(int local_rank, std::string text, supervision::Event event);
  void blame(const Blame& blame);
  void blame_accused();
  RankView view(int local_rank) const;
  std::vector<RankView> views() const;
  void send_signal(int signal_number);
  void send_last_signal(int signal_number);
  void flush();
  void report();

  const LaunchPlan& plan_;
  const LogFolder& errors_;
  Containment& containment_;
  base::EventLoop& loop_;
  GuardLink& link_;
  OutputThread& output_;
  SignalRelay& relay_;
  StdinCopies& stdin_copies_;
  std::vector<base::UniqueFd> stdin_ends_;  // of the ranks to be started, with --stdin=all
  base::EventLoop::Callback on_end_;
  base::ChildSetup::Group rank_group_;
  rendezvous::JobPage page_;
  FlightFiles flights_;
  Leftovers leftovers_;
  OomCounter oom_;
  OutputFlush flush_;
  base::Timer timer_;  // of the phase
  base::Timer missing_timer_;
  ProgressWatch progress_;
  base::Deadline stalled_until_ = base::Deadline::never();  // then SIGKILL follows SIGABRT
  std::string suspicion_;  // why the job may have failed, if it still stands after a while
  base::Deadline suspected_for_ = base::Deadline::never();
  StartOrder order_;
  supervision::Phase phase_ = supervision::Phase::kIdle;
  std::vector<Rank> ranks_;
  std::unordered_map<pid_t, int> by_pid_;  // of those that live
  Blame found_;
  SpawnFailure start_failure_;
  std::string start_failure_text_;
  StopCause cause_ = StopCause::kFailure;
  int first_signal_ = 0;
  int passed_signal_ = 0;
  base::Deadline::Duration yield_time_{};
  std::optional<base::Deadline::Duration> operator_grace_;  // of the signal that came
  int ends_ = 0;
  int last_signal_ = 0;  // that was sent to end them; 0: none
  int unkillable_ = 0;
  bool paused_ = false;
  bool yielded_ = false;  // they were asked to end by themselves
  bool look_posted_ = false;
  bool settle_posted_ = false;
};

}  // namespace dtrun::launcher
