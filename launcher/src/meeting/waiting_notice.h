// WaitingNotice: while a job waits to begin, tells the operator from time to time for what. Belongs
// to its loop's thread.
#pragma once

#include <functional>
#include <string>

#include "dtrun/base/event_loop.h"
#include "plan/launch_plan.h"

namespace dtrun::launcher {

class WaitingNotice {
 public:
  /// @param text asked each time; empty: there is nothing to say
  WaitingNotice(base::EventLoop& loop, const LaunchPlan& plan, std::function<std::string()> text);

  /// The waiting begins. A short wait is not reported.
  void start();
  void stop() { timer_.cancel(); }

 private:
  void wait(base::Deadline::Duration pause);

  const LaunchPlan& plan_;
  std::function<std::string()> text_;
  base::Timer timer_;
};

}  // namespace dtrun::launcher
