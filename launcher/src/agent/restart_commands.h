// RestartCommands: what a node runs between two rounds: --on-restart CMD, then --health-check CMD.
// Belongs to its loop's thread.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "dtrun/base/event_loop.h"
#include "dtrun/base/tool_process.h"
#include "dtrun/rendezvous/round_messages.h"
#include "plan/launch_plan.h"

namespace dtrun::launcher {

class RestartCommands {
 public:
  RestartCommands(base::EventLoop& loop, const LaunchPlan& plan)
      : loop_(loop), plan_(plan), patience_(loop) {}

  struct Restart {
    int number = 1;  ///< of this one, from 1
    int node = -1;   ///< that this is; -1: not known
    rendezvous::rounds::JobFailure cause;
  };
  /// Runs them one after the other.
  /// @param done called once, unless they are cancelled, with why this node must not take part any
  /// more, or nothing. May be called at once
  void run(const Restart& restart, std::function<void(std::string fault)> done);
  /// The job ends: kills what runs.
  void cancel();

 private:
  void start(const char* option, const std::string& command, std::function<void(std::string)> end);
  void check_health();
  void finish(const std::string& fault);

  base::EventLoop& loop_;
  const LaunchPlan& plan_;
  base::Timer patience_;
  Restart restart_;
  std::function<void(std::string)> done_;  ///< none: nothing runs
  std::unique_ptr<base::ToolProcess> process_;
  int number_ = 0;  ///< of the command that runs; what is told of another is late
};

}  // namespace dtrun::launcher
