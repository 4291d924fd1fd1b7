// Leftovers: what the ranks of a group have started and left behind when they ended. The guard is
// their reaper, so they are children of this process. On the guard's EventLoop.
#pragma once

#include <sys/types.h>

#include <functional>
#include <unordered_map>

#include "dtrun/base/event_loop.h"
#include "ranks/containment.h"

namespace dtrun::launcher {

class Leftovers {
 public:
  Leftovers(base::EventLoop& loop, const Containment& containment)
      : containment_(containment), patience_(loop) {}

  /// To all children but the ranks, by pid.
  static void signal(int signal_number, const std::unordered_map<pid_t, int>& ranks);

  /// Once no rank is left: SIGTERM, half a second, SIGKILL, until no child is left.
  /// @param last_signal what they have been sent already; 0: nothing
  /// @param on_end called at once where there is none; with how many SIGKILL did not end
  void sweep(int last_signal, std::function<void(int unkillable)> on_end);
  /// A child has been reaped.
  void on_child_end();

 private:
  void kill();
  void end(int unkillable);

  const Containment& containment_;
  base::Timer patience_;
  std::function<void(int)> on_end_;
};

}  // namespace dtrun::launcher
