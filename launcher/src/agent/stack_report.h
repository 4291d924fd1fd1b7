// StackReport: the stack of a rank that makes no progress, for --progress-timeout: what `dtrun
// stacks` shows of it, as a notice. Runs that program beside the job's work; one at a time. Belongs
// to its loop's thread.
#pragma once

#include <memory>
#include <string>

#include "dtrun/base/event_loop.h"
#include "dtrun/base/tool_process.h"
#include "dtrun/base/unique_fd.h"
#include "plan/launch_plan.h"

namespace dtrun::launcher {

class StackReport {
 public:
  StackReport(base::EventLoop& loop, const LaunchPlan& plan)
      : loop_(loop), plan_(plan), patience_(loop) {}

  /// Tells the stack, or why it cannot be told, once it is there. @param rank global, of this node
  void tell(int rank);

 private:
  void finish(int number, int rank, const std::string& failure);

  base::EventLoop& loop_;
  const LaunchPlan& plan_;
  base::Timer patience_;
  base::UniqueFd output_;
  std::unique_ptr<base::ToolProcess> process_;
  int number_ = 0;  ///< of the program that runs; what is told of another is late
};

}  // namespace dtrun::launcher
