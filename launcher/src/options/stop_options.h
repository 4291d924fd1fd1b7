// StopOptions: what signals to dtrun mean for its ranks, how long ranks that must end get to do so,
// and which exit code follows (docs/supervision.md).
#pragma once

#include <chrono>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "dtrun/base/env.h"
#include "options/exit_policy.h"
#include "options/option_binding.h"

namespace dtrun::launcher {

struct SignalPolicy {
  enum class Action {
    kStop,     ///< the job ends, here and on all nodes
    kDrain,    ///< the ranks of this node get the signal, and time to end by themselves
    kForward,  ///< they get the signal
    kPause,    ///< they are stopped, and then this process, until it is continued (Ctrl-Z)
    kIgnore,
  };
  int signal = 0;
  Action action = Action::kStop;
  /// kStop: until SIGKILL; kDrain: until they are stopped. Negative: shutdown_timeout.
  std::chrono::nanoseconds time{-1};
};

/// What is done about a rank for which others wait too long.
enum class OnStall { kReport, kEnd };

struct StopOptions {
  /// One for each signal that does not keep its default action.
  std::vector<SignalPolicy> signals;
  // From the first signal to SIGKILL: of a stop by an operator, before another round, at the end.
  std::chrono::nanoseconds shutdown_timeout = std::chrono::seconds(30);
  std::chrono::nanoseconds restart_timeout = std::chrono::seconds(30);
  std::chrono::nanoseconds failure_timeout = std::chrono::seconds(30);
  ExitPolicy exit;
  /// How long a rank may be in one collective; 0: for ever.
  std::chrono::nanoseconds progress_timeout{};
  OnStall on_stall = OnStall::kReport;
  /// As --signals-to-handle has it: torchrun tells its ranks.
  std::string handled = "SIGTERM,SIGINT,SIGHUP,SIGQUIT";

  const SignalPolicy* policy_of(int signal) const;
  std::vector<int> numbers() const;
};

/// The signals as they are handled where the user says nothing.
/// @param ignored at the start of this process: SIGHUP by nohup(1), SIGTSTP by a shell without job
/// control
std::vector<SignalPolicy> default_signals(const std::set<int>& ignored);
/// "TERM", "SIGTERM" or "15". nullptr-like 0: no signal that can be handled.
int signal_of(std::string_view name);

void bind_stop_options(OptionBinding& binding, StopOptions& options);
/// Sets the options that follow from the bound ones. @throws Error kUsage
void complete_stop_options(const CommandLine& line, const base::Environment& environment,
                           StopOptions& options);

}  // namespace dtrun::launcher
