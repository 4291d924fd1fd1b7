// dtrun: options -> plan -> rendezvous -> supervise -> report.
#include <fcntl.h>
#include <fmt/core.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>

#include "agent.h"
#include "command_line.h"
#include "dtrun/base/error.h"
#include "dtrun/base/log.h"
#include "dtrun/base/process_tree.h"
#include "error_folder.h"
#include "exit_code.h"
#include "guard.h"
#include "job_report.h"
#include "launch_plan.h"
#include "options.h"

namespace dtrun::launcher {
namespace {

using base::Error;
using base::ErrorCode;
using base::log::Component;

// A descriptor that we open must not become somebody's standard stream.
void fill_standard_streams() {
  while (true) {
    const int fd = ::open("/dev/null", O_RDWR);
    if (fd > STDERR_FILENO || fd < 0) {
      if (fd >= 0) ::close(fd);
      return;
    }
  }
}

// What dtrun may have been started with: ignored SIGCHLD would take the ranks' ends away.
void reset_signals() {
  ::signal(SIGCHLD, SIG_DFL);
  ::signal(SIGPIPE, SIG_IGN);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

void tell_containment() {
  base::log::info(
      Component::kLauncher,
      "containment: agent and guard are reapers of all descendants, ranks die with the guard "
      "(parent-death signal). Its limit: when agent and guard are both killed by SIGKILL at the "
      "same instant, all ranks die, but a process that a rank has detached can outlive them");
}

// Forked without exec, before this process has a thread or an event loop.
GuardHandle start_guard(const LaunchPlan& plan, const ErrorFolder& errors) {
  GuardLink::Ends ends = GuardLink::make();
  const pid_t pid = ::fork();
  if (pid < 0) throw base::system_error("start the guard", "raise the limit of processes");
  if (pid != 0) return {pid, std::move(ends.agent)};
  ends.agent.close();
  int code = kExitInternal;
  try {
    code = run_guard(plan, errors, std::move(ends.guard));
  } catch (const std::exception& error) {
    print_error(error.what());
  }
  base::kill_descendants({}, base::Deadline::after(std::chrono::seconds(10)));
  ::_exit(code);
}

int run_job(const LaunchPlan& plan) {
  for (const std::string& warning : plan.warnings) fmt::print(stderr, "{}\n", warning);
  std::fflush(stderr);
  const std::vector<pid_t> not_ours = base::child_pids();
  base::become_subreaper();
  const ErrorFolder errors = ErrorFolder::choose(plan);
  GuardHandle guard = start_guard(plan, errors);
  int code = kExitInternal;
  std::chrono::seconds patience{10};
  try {
    JobOutcome outcome = run_agent(plan, errors, guard, not_ours);
    code = report_job(plan, errors, outcome);
    if (outcome.group_end.unkillable > 0) patience = {};  // they have had it
  } catch (...) {
    base::kill_descendants(not_ours, base::Deadline::after(std::chrono::seconds(10)));
    errors.remove();
    throw;
  }
  base::kill_descendants(not_ours, base::Deadline::after(patience));
  errors.remove();
  return code;
}

int exit_code_of_error(const Error& error) {
  if (const auto* spawn = dynamic_cast<const base::SpawnError*>(&error))
    return spawn->error_number() == ENOENT ? kExitNotFound : kExitNotExecutable;
  switch (error.code()) {
    case ErrorCode::kUsage:
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kNotFound:
    case ErrorCode::kUnavailable:
      return kExitUsage;
    case ErrorCode::kConnection:
    case ErrorCode::kTimeout:
      return kExitUnreachable;
    case ErrorCode::kSystem:
      return kExitSystem;
    default:
      return kExitLauncherFailed;
  }
}

int run(const std::string& called_as, const std::vector<std::string>& arguments) {
  fill_standard_streams();
  reset_signals();
  const base::Environment environment = base::Environment::current();
  Options options = parse_options(called_as, arguments, environment);
  if (options.request == Request::kHelp) {
    fmt::print("{}", help_text());
    return 0;
  }
  if (options.request == Request::kVersion) {
    fmt::print("dtrun {}\n", DTRUN_VERSION);
    return 0;
  }
  if (options.verbose) base::log::set_levels("launcher");
  const LaunchPlan plan = make_plan(std::move(options), environment);
  tell_containment();
  return run_job(plan);
}

}  // namespace
}  // namespace dtrun::launcher

int main(int argc, char** argv) {
  using namespace dtrun;
  try {
    return launcher::run(argc > 0 ? argv[0] : "", std::vector<std::string>(argv + 1, argv + argc));
  } catch (const base::Error& error) {
    launcher::print_error(error.what());
    return launcher::exit_code_of_error(error);
  } catch (const std::exception& error) {
    launcher::print_error(error.what());
    return launcher::kExitInternal;
  }
}
