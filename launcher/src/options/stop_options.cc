#include "options/stop_options.h"

#include <fmt/core.h>
#include <signal.h>
#include <string.h>

#include <algorithm>
#include <string>

#include "dtrun/base/error.h"
#include "dtrun/base/split.h"
#include "text/duration_text.h"

namespace dtrun::launcher {
namespace {

using Action = SignalPolicy::Action;
using std::chrono::nanoseconds;

constexpr const char* kTimeoutVariable = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT";  // torchrun's

// Signals that cannot be handled, that a fault in dtrun itself raises, or that dtrun needs for its
// own work.
constexpr int kNotHandled[] = {SIGKILL, SIGSTOP, SIGSEGV, SIGBUS,  SIGFPE, SIGILL,
                               SIGABRT, SIGTRAP, SIGSYS,  SIGCHLD, SIGPIPE};

int read_signal(std::string_view name) {
  const int number = signal_of(name);
  if (number == 0)
    throw demand(
        fmt::format("names '{}', which is no signal that dtrun can handle: TERM, INT, "
                    "HUP, QUIT, USR1, USR2 and others",
                    name));
  return number;
}

void set(std::vector<SignalPolicy>& signals, SignalPolicy policy) {
  std::erase_if(signals, [&](const SignalPolicy& one) { return one.signal == policy.signal; });
  signals.push_back(policy);
}

// torchrun's list: each of these stops the job. Other signals keep their default action.
void read_signals_to_handle(const std::string& names, StopOptions& options) {
  options.handled = names;
  std::erase_if(options.signals,
                [](const SignalPolicy& one) { return one.action == Action::kStop; });
  for (const std::string_view name : base::split(names, ','))
    if (!name.empty()) set(options.signals, {read_signal(name), Action::kStop});
}

SignalPolicy read_rule(std::string_view rule) {
  constexpr std::pair<std::string_view, Action> kActions[] = {{"stop", Action::kStop},
                                                              {"drain", Action::kDrain},
                                                              {"forward", Action::kForward},
                                                              {"pause", Action::kPause},
                                                              {"ignore", Action::kIgnore}};
  const auto equals = rule.find('=');
  if (equals == std::string_view::npos)
    throw demand(fmt::format("has '{}' where NAME=ACTION is expected", rule));
  SignalPolicy policy;
  policy.signal = read_signal(rule.substr(0, equals));
  const std::string_view text = rule.substr(equals + 1);
  const auto colon = text.find(':');
  const auto action =
      std::ranges::find(kActions, text.substr(0, colon), [](const auto& one) { return one.first; });
  if (action == std::end(kActions))
    throw demand(
        fmt::format("has the action '{}'; there are stop[:TIME], drain[:TIME], forward, "
                    "pause and ignore",
                    text.substr(0, colon)));
  policy.action = action->second;
  if (colon == std::string_view::npos) return policy;
  const auto time = parse_duration(text.substr(colon + 1));
  if (!time || (policy.action != Action::kStop && policy.action != Action::kDrain))
    throw demand(
        fmt::format("has '{}', where only stop and drain have a time, such as 600s, 10m "
                    "or 0.5",
                    rule));
  policy.time = *time;
  return policy;
}

nanoseconds shutdown_timeout_of(const std::string& variable) {
  if (const auto time = parse_duration(variable)) return *time;
  throw base::Error(
      base::ErrorCode::kUsage,
      fmt::format("{}={} must be a number of seconds, 0 or more", kTimeoutVariable, variable),
      "it is in the environment, and --shutdown-timeout is not given",
      "correct it, or give --shutdown-timeout");
}

std::set<int> ignored_signals() {
  std::set<int> ignored;
  for (const int number : {SIGHUP, SIGTSTP}) {
    struct sigaction action {};
    ::sigaction(number, nullptr, &action);
    if (action.sa_handler == SIG_IGN) ignored.insert(number);
  }
  return ignored;
}

}  // namespace

const SignalPolicy* StopOptions::policy_of(int signal) const {
  for (const SignalPolicy& policy : signals)
    if (policy.signal == signal) return &policy;
  return nullptr;
}

std::vector<int> StopOptions::numbers() const {
  std::vector<int> result;
  for (const SignalPolicy& policy : signals) result.push_back(policy.signal);
  return result;
}

std::vector<SignalPolicy> default_signals(const std::set<int>& ignored) {
  std::vector<SignalPolicy> signals = {{SIGINT, Action::kStop},
                                       {SIGTERM, Action::kStop},
                                       {SIGQUIT, Action::kStop},
                                       {SIGUSR1, Action::kForward},
                                       {SIGUSR2, Action::kForward}};
  if (!ignored.contains(SIGHUP)) signals.push_back({SIGHUP, Action::kStop});
  if (!ignored.contains(SIGTSTP)) signals.push_back({SIGTSTP, Action::kPause});
  return signals;
}

int signal_of(std::string_view name) {
  if (name.starts_with("SIG")) name.remove_prefix(3);
  for (int number = 1; number < SIGRTMIN; ++number) {
    const char* const abbreviation = ::sigabbrev_np(number);
    const bool named =
        (abbreviation != nullptr && name == abbreviation) || name == std::to_string(number);
    if (named) return std::ranges::count(kNotHandled, number) != 0 ? 0 : number;
  }
  return 0;
}

void bind_stop_options(OptionBinding& binding, StopOptions& options) {
  options.signals = default_signals(ignored_signals());
  binding.parsed("signals-to-handle",
                 [&options](const std::string& names) { read_signals_to_handle(names, options); });
  binding.parsed("on-signal", [&options](const std::string& rules) {
    for (const std::string_view rule : base::split(rules, ','))
      set(options.signals, read_rule(rule));
  });
  binding.parsed("shutdown-timeout", options.shutdown_timeout, parse_seconds);
  binding.parsed("restart-timeout", options.restart_timeout, parse_seconds);
  binding.parsed("failure-timeout", options.failure_timeout, parse_seconds);
  binding.parsed("exit", options.exit, parse_exit_policy);
  binding.parsed("progress-timeout", options.progress_timeout, [](const std::string& text) {
    if (const auto time = parse_duration(text)) return *time;
    throw demand("must be a time, such as 300 or 5m");
  });
  binding.choice("on-progress-timeout", options.on_stall,
                 {{"report", OnStall::kReport}, {"end", OnStall::kEnd}});
}

void complete_stop_options(const CommandLine& line, const base::Environment& environment,
                           StopOptions& options) {
  const auto variable = environment.get(kTimeoutVariable);
  if (variable && !line.has("shutdown-timeout"))
    options.shutdown_timeout = shutdown_timeout_of(*variable);
  if (!line.has("restart-timeout")) options.restart_timeout = options.shutdown_timeout;
  if (!line.has("failure-timeout")) options.failure_timeout = options.shutdown_timeout;
}

}  // namespace dtrun::launcher
