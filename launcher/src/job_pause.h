// JobPause: Ctrl-Z. The terminal signals the agent only, because ranks have process groups of their
// own. So the guard stops the ranks, and then this process stops itself until the shell continues
// it; then the ranks go on. Belongs to the agent; on its EventLoop.
#pragma once

#include "dtrun/base/event_loop.h"
#include "ranks/guard_link.h"

namespace dtrun::launcher {

class JobPause {
 public:
  using Callback = base::EventLoop::Callback;

  /// @param before_stop this process is about to stop
  /// @param after_stop it has been continued
  JobPause(base::EventLoop& loop, GuardLink& link, Callback before_stop, Callback after_stop);

  void begin();
  /// The guard has answered.
  void on_ranks_stopped();

 private:
  GuardLink& link_;
  Callback before_stop_, after_stop_;
  base::Timer answer_;
  bool begun_ = false;
};

}  // namespace dtrun::launcher
