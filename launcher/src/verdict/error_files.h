// ErrorFiles: reads the error.json of the ranks that did not end well, and finds their cores and
// the lines of their stacks, beside the loop: a log folder whose file system does not answer holds
// up the report, but neither heartbeats nor signals. Belongs to its loop's thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "dtrun/base/background_call.h"
#include "dtrun/base/event_loop.h"
#include "output/log_folder.h"
#include "verdict/job_outcome.h"

namespace dtrun::launcher {

class ErrorFiles {
 public:
  explicit ErrorFiles(base::EventLoop& loop) : loop_(loop), patience_(loop) {}

  /// Reads those of the round that has ended into `outcome`, which must live, with the same ranks,
  /// until `done` is called.
  /// @param done called once: with all that was there, or, when the files have not come within 5 s,
  /// with none; the lines of stacks may take 6 s more. May be called at once
  void read(const LogFolder& folder, JobOutcome& outcome, base::EventLoop::Callback done);

 private:
  struct Finding;
  static void make_stacks_readable(std::vector<Finding>& findings);
  void take(const std::vector<Finding>& findings, const LogFolder& folder, JobOutcome& outcome);
  void find_lines(std::vector<Finding> findings, JobOutcome& outcome);
  void give_up(const std::string& why);
  void end();

  base::EventLoop& loop_;
  base::Timer patience_;
  std::unique_ptr<base::BackgroundCall> call_;
  base::EventLoop::Callback done_;
};

}  // namespace dtrun::launcher
