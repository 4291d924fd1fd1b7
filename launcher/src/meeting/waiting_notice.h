// WaitingNotice: tells the operator now and then what a job that does not begin waits for. Belongs
// to its loop's thread.
#pragma once

#include <functional>
#include <string>

#include "dtrun/base/event_loop.h"
#include "launch/launch_plan.h"

namespace dtrun::launcher {

class WaitingNotice {
 public:
  /// @param text asked each time; empty: there is nothing to say
  WaitingNotice(base::EventLoop& loop, const LaunchPlan& plan, std::function<std::string()> text);

  /// The waiting begins: nothing is said of one that is short.
  void start();
  void stop() { timer_.cancel(); }

 private:
  void wait(base::Deadline::Duration pause);

  const LaunchPlan& plan_;
  std::function<std::string()> text_;
  base::Timer timer_;
};

}  // namespace dtrun::launcher
