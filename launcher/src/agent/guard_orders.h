// GuardOrders: what the agent tells its guard, and how long it waits for the answer. Also Ctrl-Z:
// the terminal signals the agent only, because ranks have process groups of their own. So the guard
// stops the ranks, and then this process stops itself until the shell continues it; then the ranks
// go on. Belongs to the agent; on its EventLoop.
#pragma once

#include <sys/types.h>

#include <optional>
#include <vector>

#include "dtrun/base/event_loop.h"
#include "dtrun/rendezvous/round_member.h"
#include "plan/launch_plan.h"
#include "ranks/keeper.h"

namespace dtrun::launcher {

class GuardOrders {
 public:
  using Callback = base::EventLoop::Callback;
  /// For a process that SIGKILL does not end.
  static constexpr auto kKillPatience = std::chrono::seconds(10);

  /// @param not_ours children that this process had before it was dtrun
  /// @param before_pause this process is about to stop itself
  GuardOrders(base::EventLoop& loop, const LaunchPlan& plan, GuardHandle& guard,
              std::vector<pid_t> not_ours, Callback before_pause);

  void start(const rendezvous::rounds::Start& start, rendezvous::rounds::Moment lease);
  /// The operator's stop of this very agent.
  struct OwnStop {
    int signal = 0;                      ///< 0: there is none
    base::Deadline::Duration grace{-1};  ///< negative: the usual one
  };
  /// A guard that does not end the ranks in time is killed.
  void stop(const rendezvous::rounds::StopWorkers& stop, const OwnStop& own);
  /// The guard ends the round, which has failed, by itself; another one follows.
  void tell_more_follows(int round);
  /// @param yield_time as in SignalOrder
  void pass(int round, int signal, base::Deadline::Duration yield_time);
  void renew_lease(rendezvous::rounds::Moment until);
  void flush();
  void pause();

  // What the guard has answered:
  void ranks_are_stopped();
  /// No rank is left, or no guard.
  void ranks_are_gone();

 private:
  void await_answer(base::Deadline::Duration time);

  const LaunchPlan& plan_;
  GuardHandle& guard_;
  GuardLink& link_;
  std::vector<pid_t> not_ours_;
  Callback before_pause_;
  base::Timer answer_;  ///< to a stop
  /// answer_ runs for so long; none: it does not.
  std::optional<base::Deadline::Duration> answer_time_;
  base::Timer pause_;  ///< until the ranks are stopped
  bool pausing_ = false;
};

}  // namespace dtrun::launcher
