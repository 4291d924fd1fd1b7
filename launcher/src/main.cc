// dtrun: options -> facts of this machine -> plan -> rendezvous -> supervise -> report.
#include <fcntl.h>
#include <fmt/core.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <optional>

#include "agent/agent.h"
#include "agent/metrics_server.h"
#include "cpus/device_count.h"
#include "dtrun/base/cpu_list.h"
#include "dtrun/base/detached_thread.h"
#include "dtrun/base/env.h"
#include "dtrun/base/error.h"
#include "dtrun/base/log.h"
#include "dtrun/base/process_tree.h"
#include "dtrun/base/socket.h"
#include "dtrun/base/unique_fd.h"
#include "dtrun/base/utf8.h"
#include "hosts/host_job.h"
#include "hosts/host_place.h"
#include "hosts/host_plan.h"
#include "hosts/host_plan_text.h"
#include "hosts/host_relay.h"
#include "options/exit_code.h"
#include "options/options.h"
#include "output/log_folder.h"
#include "output/notice.h"
#include "output/private_folder.h"
#include "plan/launch_plan.h"
#include "preview/binding_report.h"
#include "preview/inquiry.h"
#include "preview/plan_description.h"
#include "preview/plan_table.h"
#include "ranks/keeper.h"
#include "ranks/timing.h"
#include "sources/engine_options.h"
#include "sources/option_sources.h"
#include "text/json_text.h"
#include "verdict/event_log.h"
#include "verdict/job_events.h"
#include "verdict/job_report.h"

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

// The reader of standard error may have stopped; dtrun waits for it until a signal ends the
// process. At first, while the reader may be only slow, signals stay ignored, so that the exit code
// is the job's.
void say_last_words(base::Deadline deadline) {
  if (finish_notices(base::Deadline::after(std::chrono::seconds(1)))) return;
  for (const int number : {SIGINT, SIGQUIT, SIGTERM, SIGTSTP}) ::signal(number, SIG_DFL);
  reset_signals();
  finish_notices(deadline);
}

void print_warnings(const LaunchPlan& plan) {
  if (plan.options.one_of_hosts && plan.options.node_rank != 0) return;
  for (const std::string& warning : plan.warnings)
    print_text(NoticeLevel::kWarning, base::without_controls(warning) + "\n");
}

void tell_bindings(const LaunchPlan& plan) {
  for (std::size_t rank = 0; rank < plan.bindings.size(); ++rank)
    if (const RankBinding& binding = plan.bindings[rank]; !binding.cpus.empty())
      base::log::info(Component::kLauncher, "local rank {}: {}", rank, binding.describe());
}

void tell_events(const LaunchPlan& plan, const JobOutcome& outcome) {
  if (plan.options.event_log == EventLog::kNone) return;
  for (const std::string& line :
       worker_events(plan, outcome, base::host_name(), std::chrono::system_clock::now()))
    print_as_it_is(line + "\n");
}

void tell_timing(const LaunchPlan& plan, const Timing& timing) {
  if (plan.options.timing == TimingForm::kNone) return;
  const bool json =
      plan.options.timing == TimingForm::kJson || notice_format() == LineFormat::kJson;
  print_as_it_is((json ? timing_json : timing_text)(timing, plan.local_ranks));
}

// The table comes when the terminal is as it was.
JobOutcome run_with_terminal(const LaunchPlan& plan, const std::function<JobOutcome()>& run) {
  std::optional<TerminalRelay> relay;
  if (plan.debug_terminal) relay.emplace(plan.debug_terminal);
  return run();
}

// Of agent and guard. That it is high enough make_plan() has seen.
void raise_open_files_limit() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

// While the port is awaited. A name that is not known yet is looked up again later.
void look_up_first(Options& options) {
  try {
    options.master_addresses = base::resolve_addresses(options.master_addr);
  } catch (const Error&) {
    options.master_addresses.clear();
  }
}

// In a job of dtrun --hosts, before the first host is ready. @return false: the relay has ended
bool hear_relay(LaunchPlan& plan, base::UniqueFd& start_sign) {
  if (plan.options.node_rank != 0) look_up_first(plan.options);
  std::optional<WordOfRelay> word = await_port_of_first();
  if (!word) return false;
  plan.options.master_port = word->port;
  start_sign = std::move(word->start_sign);
  return true;
}

int run_job(LaunchPlan& plan, Timing timing) {
  raise_open_files_limit();
  if (plan.options.report_bindings)
    print_text(NoticeLevel::kInfo,
               binding_report(plan, {base::allowed_cpus(),
                                     count_gpus(base::get_env("CUDA_VISIBLE_DEVICES"))}));
  print_warnings(plan);
  for (const std::string& note : plan.options.notes)
    base::log::info(Component::kLauncher, "{}", note);
  JobEvents events(plan);
  const std::vector<pid_t> not_ours = base::child_pids();
  base::become_subreaper();
  const LogFolder errors = LogFolder::choose(plan);
  if (errors.kept() && plan.options.output.log_dir.empty())
    print_line(NoticeLevel::kInfo, fmt::format("the ranks' output is kept in {}", errors.path()));
  if (plan.options.debug_rank) plan.debug_terminal = std::make_shared<DebugTerminal>();
  GuardHandle guard = GuardHandle::start(plan, errors);
  if (plan.debug_terminal) plan.debug_terminal->leave_rank_end();
  timing.guard_started = now_ns();
  base::reserve_descriptors(plan.descriptors_of_agent);
  base::UniqueFd start_sign;
  if (plan.options.one_of_hosts && !hear_relay(plan, start_sign)) {
    guard.end(not_ours);
    return 0;
  }
  write_notices_by_thread();
  // A folder for temporary files may be large, and its file system may hang.
  base::start_detached_thread([] {
    for (const std::string& place : places_of_private_folders()) remove_abandoned_folders(place);
  });
  int code = kExitInternal;
  std::chrono::seconds patience{10};
  base::Deadline last_words = base::Deadline::never();
  try {
    base::UniqueFd metrics_listener = listen_for_scrapes(plan);
    events.job_began();
    JobOutcome outcome = run_with_terminal(plan, [&] {
      return run_agent(plan, errors, events, std::move(metrics_listener), std::move(start_sign),
                       guard, not_ours);
    });
    code = report_job(plan, errors, outcome);
    tell_job_end(plan, outcome, guard.link());
    tell_events(plan, outcome);
    events.job_ended(outcome, code);
    // A job that was told to stop does not wait for a reader that has stopped.
    if (outcome.stop_signal != 0)
      last_words = base::Deadline::after(plan.options.stop.shutdown_timeout);
    timing = joined(timing, outcome.timing);
    if (outcome.group_end.unkillable > 0)
      patience = {};  // the guard has already waited for them
    else
      guard.end(not_ours);
  } catch (...) {
    guard.end(not_ours);
    base::kill_descendants(not_ours, base::Deadline::after(std::chrono::seconds(10)));
    errors.remove();
    throw;
  }
  base::kill_descendants(not_ours, base::Deadline::after(patience));
  errors.remove();
  timing.end = now_ns();
  tell_timing(plan, timing);
  say_last_words(last_words);
  return code;
}

// A program may read the answer, so an answer that is not whole is an error. A reader that closes
// the pipe has read enough.
void print_answer(const std::string& text) {
  ::signal(SIGPIPE, SIG_DFL);
  const bool whole = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (std::fflush(stdout) != 0 || !whole) throw base::system_error("write to the standard output");
}

int print_plan(const LaunchPlan& plan, const base::Environment& environment) {
  print_warnings(plan);
  const boost::json::object description = describe_plan(plan, environment, base::host_name());
  print_answer(plan.options.dry_run == DryRun::kJson ? json_text(description)
                                                     : plan_table(description));
  return 0;
}

// Notices about the options, in the format that the options ask for.
void begin_notices(const Options& options) {
  use_notice_format(options.output.format);
  if (options.verbose) base::log::set_levels("launcher");
  if (!options.users_file.empty())
    base::log::info(Component::kLauncher,
                    "options of {} are in force, where no other source sets them",
                    options.users_file);
  if (!options.engine_note.empty())
    base::log::info(Component::kLauncher, "{}", options.engine_note);
}

// --hosts: dtrun is started on each of them.
int run_on_hosts(const std::string& called_as, const CommandLine& line,
                 const base::Environment& environment) {
  const HostPlan plan = make_host_plan(called_as, line, environment);
  begin_notices(plan.options);
  if (plan.options.dry_run != DryRun::kNo) {
    print_answer(plan.options.dry_run == DryRun::kJson ? json_text(describe_host_plan(plan))
                                                       : host_plan_text(plan));
    return 0;
  }
  const int code = run_host_job(plan, environment);
  say_last_words(base::Deadline::after(std::chrono::seconds(1)));
  return plan.options.ends_as_torchrun && code != 0 ? kExitTorch : code;
}

int run_here(const std::string& called_as, CommandLine line, base::Environment environment,
             Timing timing) {
  for (auto& [name, value] : exported_variables(line, environment))
    environment.set(name, std::move(value));
  if (line.has("wdir")) enter_folder(line.get("wdir").value, "--wdir");
  Options options = read_options(called_as, std::move(line), environment);
  timing.options_read = now_ns();
  begin_notices(options);
  const MachineFacts facts = look_at_machine(options, environment);
  LaunchPlan plan = make_plan(std::move(options), environment, facts);
  tell_bindings(plan);
  if (plan.options.dry_run != DryRun::kNo) return print_plan(plan, environment);
  timing.planned = now_ns();
  const int code = run_job(plan, timing);
  return plan.options.ends_as_torchrun && code != 0 ? kExitTorch : code;
}

// "dtrun doctor" is the program dtrun-doctor beside dtrun, and "dtrun ps" is "dtrun-jobs ps". A
// program of the user's that is called so is ./ps, or comes after an option.
void become_tool(const std::vector<std::string>& arguments) {
  const std::string word = arguments.empty() ? "" : arguments.front();
  const bool is_of_jobs =
      word == "ps" || word == "status" || word == "stacks" || word == "signal" || word == "attach";
  if (word != "doctor" && !is_of_jobs) return;
  std::error_code none;
  const std::string tool = std::filesystem::read_symlink("/proc/self/exe", none)
                               .replace_filename(is_of_jobs ? "dtrun-jobs" : "dtrun-doctor");
  std::vector<std::string> words = arguments;
  if (is_of_jobs) words.insert(words.begin(), tool);
  std::vector<char*> pointers;
  for (std::string& one : words) pointers.push_back(one.data());
  pointers.push_back(nullptr);
  ::execv(tool.c_str(), pointers.data());
  throw base::system_error("run " + tool, errno, "scripts/install puts it there");
}

int run_to_end(const std::string& called_as, const std::vector<std::string>& arguments);

// The only step before the rendezvous that may wait for other tasks is meet_engine(): reading the
// options before it and planning after it ask nobody.
int run_line(const std::string& called_as, CommandLine line, const base::Environment& environment,
             const Timing& timing) {
  meet_engine(line);
  if (const auto answer = answer_to_inquiry(line)) {
    print_answer(*answer);
    return 0;
  }
  if (line.has("remote-agent")) {
    const std::string& ports = line.get("remote-agent").value;
    return run_host_relay(ports == "1" ? "" : ports, environment,
                          [](const auto& arguments) { return run_to_end("dtrun", arguments); });
  }
  if (names_hosts(line)) return run_on_hosts(called_as, line, environment);
  return run_here(called_as, std::move(line), environment, timing);
}

int run(const std::string& called_as, const std::vector<std::string>& arguments) {
  Timing timing{.exec_cpu = cpu_before_main(), .main = now_ns()};
  fill_standard_streams();
  reset_signals();
  const base::Environment environment = base::Environment::current();
  if (launcher::called_as(called_as) == CalledAs::kDtrun) become_tool(arguments);
  try {
    return run_line(called_as, gather_options(arguments, environment), environment, timing);
  } catch (const Error&) {
    use_notice_format(wished_format(arguments, environment));
    throw;
  }
}

// An error ends it, and is told.
int run_to_end(const std::string& called_as, const std::vector<std::string>& arguments) {
  try {
    return run(called_as, arguments);
  } catch (const Error& error) {
    print_error(error.what());
    say_last_words(base::Deadline::never());
    return exit_code_of_error(error, launcher::called_as(called_as));
  } catch (const std::exception& error) {
    print_error(error.what());
    say_last_words(base::Deadline::never());
    return kExitInternal;
  }
}

}  // namespace
}  // namespace dtrun::launcher

int main(int argc, char** argv) {
  const std::string name = argc > 0 ? argv[0] : "";
  return dtrun::launcher::run_to_end(name, std::vector<std::string>(argv + 1, argv + argc));
}
