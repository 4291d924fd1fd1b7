#include "options/stop_options.h"

#include <fmt/core.h>
#include <signal.h>
#include <string.h>

#include <algorithm>
#include <string>

#include "dtrun/base/error.h"
#include "text/duration_text.h"

namespace dtrun::launcher {
namespace {

using Action = SignalPolicy::Action;
using std::chrono::nanoseconds;

constexpr const char* kTimeoutVariable = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT";  // torchrun's

// Those that nobody can handle, that a fault of dtrun's own raises, and that it lives by.
constexpr int kNotHandled[] = {SIGKILL, SIGSTOP, SIGSEGV, SIGBUS,  SIGFPE, SIGILL,
                               SIGABRT, SIGTRAP, SIGSYS,  SIGCHLD, SIGPIPE};

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const auto at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

int read_signal(const OptionValues& values, const char* option, std::string_view name) {
  const int number = signal_of(name);
  if (number == 0)
    values.reject(option,
                  fmt::format("names '{}', which is no signal that dtrun can handle: TERM, INT, "
                              "HUP, QUIT, USR1, USR2 and others",
                              name));
  return number;
}

void set(std::vector<SignalPolicy>& signals, SignalPolicy policy) {
  std::erase_if(signals, [&](const SignalPolicy& one) { return one.signal == policy.signal; });
  signals.push_back(policy);
}

// torchrun's list: each of them stops, and what else stops by default is left alone.
void read_signals_to_handle(const OptionValues& values, std::vector<SignalPolicy>& signals) {
  constexpr const char* kOption = "signals-to-handle";
  if (!values.has(kOption)) return;
  std::erase_if(signals, [](const SignalPolicy& one) { return one.action == Action::kStop; });
  for (const std::string_view name : split(values.get(kOption).value, ','))
    if (!name.empty()) set(signals, {read_signal(values, kOption, name), Action::kStop});
}

SignalPolicy read_rule(const OptionValues& values, std::string_view rule) {
  constexpr const char* kOption = "on-signal";
  const auto equals = rule.find('=');
  if (equals == std::string_view::npos)
    values.reject(kOption, fmt::format("has '{}' where NAME=ACTION is expected", rule));
  SignalPolicy policy;
  policy.signal = read_signal(values, kOption, rule.substr(0, equals));
  const std::string_view text = rule.substr(equals + 1);
  const auto colon = text.find(':');
  const std::string_view action = text.substr(0, colon);
  if (action == "stop")
    policy.action = Action::kStop;
  else if (action == "drain")
    policy.action = Action::kDrain;
  else if (action == "forward")
    policy.action = Action::kForward;
  else if (action == "pause")
    policy.action = Action::kPause;
  else if (action == "ignore")
    policy.action = Action::kIgnore;
  else
    values.reject(kOption, fmt::format("has the action '{}'; there are stop[:TIME], drain[:TIME], "
                                       "forward, pause and ignore",
                                       action));
  if (colon == std::string_view::npos) return policy;
  const auto time = parse_duration(text.substr(colon + 1));
  if (!time || (policy.action != Action::kStop && policy.action != Action::kDrain))
    values.reject(kOption, fmt::format("has '{}', where only stop and drain have a time, such as "
                                       "600s, 10m or 0.5",
                                       rule));
  policy.time = *time;
  return policy;
}

void read_on_signal(const OptionValues& values, std::vector<SignalPolicy>& signals) {
  if (!values.has("on-signal")) return;
  for (const std::string_view rule : split(values.get("on-signal").value, ','))
    set(signals, read_rule(values, rule));
}

nanoseconds read_shutdown_timeout(const OptionValues& values, const base::Environment& environment,
                                  nanoseconds otherwise) {
  const auto variable = environment.get(kTimeoutVariable);
  if (values.has("shutdown-timeout") || !variable)
    return values.seconds("shutdown-timeout", otherwise);
  const auto time = parse_duration(*variable);
  if (!time)
    throw base::Error(
        base::ErrorCode::kUsage,
        fmt::format("{}={} must be a number of seconds, 0 or more", kTimeoutVariable, *variable),
        "it is in the environment, and --shutdown-timeout is not given",
        "correct it, or give --shutdown-timeout");
  return *time;
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

StopOptions read_stop_options(const OptionValues& values, const base::Environment& environment) {
  StopOptions options;
  options.signals = default_signals(ignored_signals());
  read_signals_to_handle(values, options.signals);
  options.handled = values.text("signals-to-handle", options.handled);
  read_on_signal(values, options.signals);
  options.shutdown_timeout = read_shutdown_timeout(values, environment, options.shutdown_timeout);
  options.restart_timeout = values.seconds("restart-timeout", options.shutdown_timeout);
  options.failure_timeout = values.seconds("failure-timeout", options.shutdown_timeout);
  if (values.has("exit")) {
    try {
      options.exit = parse_exit_policy(values.get("exit").value);
    } catch (const base::Error& error) {
      values.reject("exit", error.summary());
    }
  }
  return options;
}

}  // namespace dtrun::launcher
