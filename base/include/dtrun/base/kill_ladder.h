// KillLadder: ends a set of process groups in steps: a first signal (with SIGCONT, so that stopped
// processes can act on it), a time of grace, SIGKILL. Driven by an EventLoop; not thread-safe.
#pragma once

#include <sys/types.h>

#include <set>

#include "dtrun/base/event_loop.h"

namespace dtrun::base {

class KillLadder {
 public:
  KillLadder(EventLoop& loop, Deadline::Duration grace) : grace_(grace), timer_(loop) {}

  /// A group whose leader is an unreaped child. Added after the start: gets the current step.
  void add(pid_t group);
  /// To be called when the leader is reaped: from then on the number may become another's.
  void remove(pid_t group) { groups_.erase(group); }

  /// Once; a later call does nothing.
  void start(int first_signal);
  /// Goes to SIGKILL now, also when not started.
  void kill_now();
  /// Called with each step's signal after it has been sent.
  void on_step(std::function<void(int)> callback) { on_step_ = std::move(callback); }

  bool started() const { return step_ != 0; }
  bool empty() const { return groups_.empty(); }

 private:
  void send(int signal_number);

  Deadline::Duration grace_;
  Timer timer_;
  std::function<void(int)> on_step_;
  std::set<pid_t> groups_;
  int step_ = 0;  // the signal sent last; 0: none yet
};

}  // namespace dtrun::base
