// dtrun-jobs: the jobs of dtrun on this machine, as `dtrun ps`, `dtrun status`, `dtrun stacks`,
// `dtrun attach` and `dtrun signal`.
#include <fmt/core.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "doctor/text_files.h"
#include "dtrun/base/deadline.h"
#include "dtrun/base/env.h"
#include "dtrun/base/error.h"
#include "dtrun/base/event_loop.h"
#include "dtrun/base/split.h"
#include "dtrun/base/tool_process.h"
#include "dtrun/base/unique_fd.h"
#include "dtrun/rendezvous/flight_record.h"
#include "jobs/attachment.h"
#include "jobs/local_job.h"
#include "jobs/process_table.h"
#include "jobs/stack_scan.h"
#include "tool_main.h"
#include "verdict/stack_lines.h"

namespace dtrun::jobs {
namespace {

using base::Error;
using base::ErrorCode;
using rendezvous::RankState;
namespace json = boost::json;

constexpr int kMostRanks = 1 << 24;
/// Of the program that finds the lines of a scanned stack.
constexpr auto kLinePatience = std::chrono::seconds(5);

struct Options {
  std::string job;
  int rank = -1;
  std::string signal = "TERM";
  std::string record;  ///< a file; empty: none
  bool as_json = false;
};

/// "0-3 of 8".
std::string ranks_text(const LocalJob& job) {
  int first = -1, last = -1;
  for (const LocalRank& rank : job.ranks) {
    if (rank.rank < 0) continue;
    first = first < 0 ? rank.rank : std::min(first, rank.rank);
    last = std::max(last, rank.rank);
  }
  if (first < 0) return "none yet";
  const std::string own = first == last ? std::to_string(first) : fmt::format("{}-{}", first, last);
  return job.world.empty() ? own : own + " of " + job.world;
}

/// "3 in a collective, 1 computes", or why it fails.
std::string state_text(const LocalJob& job) {
  if (!job.cause.empty()) return job.cause;
  const std::map<RankState, const char*> words = {{RankState::kNone, "to come"},
                                                  {RankState::kSpawned, "not joined"},
                                                  {RankState::kInit, "joining"},
                                                  {RankState::kRunning, "computing"},
                                                  {RankState::kInCollective, "in a collective"},
                                                  {RankState::kLeft, "left"},
                                                  {RankState::kExited, "ended"}};
  std::map<RankState, int> counts;
  for (const LocalRank& rank : job.ranks) ++counts[rank.state];
  std::string text;
  for (const auto& [state, count] : counts) {
    const auto word = words.find(state);
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count,
                        word == words.end() ? "in disorder" : word->second);
  }
  return text;
}

/// "3 s", "4 min", "2 h 10 min", "5 d 3 h".
std::string age_text(const LocalJob& job) {
  const long long seconds = job.age.count(), minutes = seconds / 60, hours = minutes / 60;
  if (seconds < 120) return fmt::format("{} s", seconds);
  if (minutes < 120) return fmt::format("{} min", minutes);
  if (hours < 48) return fmt::format("{} h {} min", hours, minutes % 60);
  return fmt::format("{} d {} h", hours / 24, hours % 24);
}

json::object json_of(const LocalJob& job) {
  json::array ranks;
  for (const LocalRank& rank : job.ranks) {
    json::object one{{"rank", rank.rank},
                     {"local_rank", rank.local_rank},
                     {"pid", rank.pid},
                     {"stopped", rank.is_stopped},
                     {"does", describe(rank)}};
    if (rank.newest)
      one["operation"] = json::object{{"name", plain(rank.newest->operation.name)},
                                      {"sequence", rank.newest->operation.sequence},
                                      {"group", plain(rank.newest->operation.group)},
                                      {"call_site", plain(rank.newest->call_site)},
                                      {"running", rank.newest->operation.ended_ns == 0},
                                      {"waiting_for", rank.newest->operation.waiting_for}};
    ranks.push_back(std::move(one));
  }
  return {{"pid", job.pid},           {"id", job.id},
          {"node", job.node},         {"nodes", job.nodes},
          {"world_size", job.world},  {"seconds", job.age.count()},
          {"command", job.command},   {"cause", job.cause},
          {"ranks", std::move(ranks)}};
}

void list_jobs(const Options& options) {
  const std::vector<LocalJob> jobs = local_jobs();
  if (options.as_json) {
    json::array list;
    for (const LocalJob& job : jobs) list.push_back(json_of(job));
    fmt::print("{}\n", json::serialize(list));
    return;
  }
  if (jobs.empty()) {
    fmt::print("no job of dtrun that you may look at runs on this machine\n");
    return;
  }
  fmt::print("{:>8} {:16} {:12} {:>9}  {}\n", "PID", "JOB", "RANKS", "FOR", "COMMAND");
  for (const LocalJob& job : jobs) {
    fmt::print("{:8} {:16} {:12} {:>9}  {}\n", job.pid, job.id.empty() ? "-" : job.id,
               ranks_text(job), age_text(job), job.command);
    fmt::print("{:8} {}\n", "", state_text(job));
  }
}

/// A beginning of an id that is no pid by mistake.
constexpr std::size_t kLeastOfId = 8;

/// Those that are meant: by the pid of their dtrun, or the beginning of their id; without either,
/// all.
std::vector<LocalJob> meant_jobs(const Options& options) {
  std::vector<LocalJob> jobs = local_jobs();
  const auto by_pid = std::ranges::find(
      jobs, options.job, [](const LocalJob& job) { return std::to_string(job.pid); });
  if (by_pid != jobs.end()) return {*by_pid};
  if (!options.job.empty())
    std::erase_if(jobs, [&](const LocalJob& job) {
      return options.job.size() < kLeastOfId || !job.id.starts_with(options.job);
    });
  return jobs;
}

LocalJob chosen_job(const Options& options) {
  // Processes come and go while they are listed, so one look may miss a job.
  std::vector<LocalJob> jobs = meant_jobs(options);
  for (int look = 1; jobs.empty() && look < 3; ++look) jobs = meant_jobs(options);
  if (jobs.empty())
    throw Error(ErrorCode::kNotFound,
                options.job.empty() ? "no job of dtrun runs on this machine"
                                    : "no job \"" + options.job + "\" runs on this machine",
                "one that has ended, or of another user or container, is not seen",
                "dtrun ps, on the machine of the ranks; a job is named by the pid of its dtrun, or "
                "by 8 and more characters of its id");
  if (jobs.size() > 1) {
    std::string all;
    for (const LocalJob& job : jobs)
      all += fmt::format("{}{} ({})", all.empty() ? "" : ", ", job.pid, job.command.substr(0, 60));
    throw Error(ErrorCode::kUsage, fmt::format("{} jobs are meant", jobs.size()), "",
                "one of " + all);
  }
  return jobs.front();
}

/// All, or the one that was asked for.
std::vector<LocalRank> chosen_ranks(const LocalJob& job, const Options& options) {
  std::vector<LocalRank> ranks = job.ranks;
  if (options.rank >= 0)
    std::erase_if(ranks, [&](const LocalRank& rank) { return rank.rank != options.rank; });
  if (ranks.empty())
    throw Error(ErrorCode::kNotFound, fmt::format("rank {} is not on this machine", options.rank),
                "it has ranks " + ranks_text(job));
  return ranks;
}

/// What dtrun writes when a job fails, of a job that lives.
void write_record(const LocalJob& job, const std::string& path) {
  rendezvous::FlightRecord record = rendezvous::read_flight(*job.page);
  const auto number = [](const std::string& text) {
    return static_cast<int>(base::parse_integer(text).value_or(0));
  };
  record.job = job.id;
  record.node = number(job.node);
  record.round = number(job.round);
  record.world_size = number(job.world);
  const std::string text = rendezvous::to_json(record);
  if (path == "-") return fmt::print("{}\n", text);
  std::ofstream file(path, std::ios::binary);
  file << text << std::endl;
  if (!file) throw base::system_error("write " + path);
  fmt::print("what the ranks did last: dtrun-explain {}\n", path);
}

void show_status(const Options& options) {
  const LocalJob job = chosen_job(options);
  if (!options.record.empty()) return write_record(job, options.record);
  if (options.as_json) {
    fmt::print("{}\n", json::serialize(json_of(job)));
    return;
  }
  fmt::print("job {} (pid {}), ranks {}, for {}: {}\n", job.id.empty() ? "-" : job.id, job.pid,
             ranks_text(job), age_text(job), job.command);
  if (!job.cause.empty()) fmt::print("it ends, because {}\n", job.cause);
  for (const LocalRank& rank : job.ranks)
    fmt::print("  rank {} (pid {}) {}\n", rank.rank, rank.pid, describe(rank));
}

/// The program that shows a process' stacks, and its arguments; empty: there is none.
std::vector<std::string> stack_program(pid_t pid) {
  const std::string own = std::filesystem::path(fmt::format("/proc/{}/exe", pid));
  std::error_code gone;
  const std::string name = std::filesystem::read_symlink(own, gone).filename();
  const std::string number = std::to_string(pid);
  const std::string py_spy = name.starts_with("python") ? doctor::in_path("py-spy") : "";
  if (!py_spy.empty()) return {py_spy, "dump", "--pid", number};
  if (const std::string eu_stack = doctor::in_path("eu-stack"); !eu_stack.empty())
    return {eu_stack, "-p", number};
  if (const std::string gdb = doctor::in_path("gdb"); !gdb.empty())
    return {gdb,
            "-p",
            number,
            "-nx",
            "-batch",
            "-ex",
            "set pagination off",
            "-ex",
            "thread apply all bt"};
  return {};
}

/// @return whether it has shown them; it has half a minute
bool run_program(const std::vector<std::string>& words) {
  base::EventLoop loop;
  base::ToolCommand command;
  command.path = words.front();
  command.arguments.assign(words.begin() + 1, words.end());
  command.environment = base::Environment::current().as_strings();
  bool has_shown = false;
  const base::ToolProcess process(loop, command, {}, [&](base::ExitStatus status) {
    has_shown = status.success();
    loop.stop();
  });
  base::Timer patience(loop);
  patience.start(base::Deadline::after(std::chrono::seconds(30)), [&] { loop.stop(); });
  loop.run();
  return has_shown;
}

/// What the kernel says of its threads, to anybody.
void show_threads(pid_t pid) {
  std::error_code gone;
  for (const auto& thread :
       std::filesystem::directory_iterator(fmt::format("/proc/{}/task", pid), gone)) {
    const auto line = [&](const char* name) {
      return doctor::first_line(thread.path() / name).value_or("?");
    };
    fmt::print("  thread {} ({}) waits in {}\n", thread.path().filename().string(),
               plain(line("comm")), line("wchan"));
  }
}

/// By the memory of its stacks. False: they cannot be read.
bool show_scan(pid_t pid) {
  const std::vector<ThreadStack> stacks = scan_stacks(pid);
  std::vector<std::vector<rendezvous::CrashFrame>> frames;
  for (const ThreadStack& stack : stacks) frames.push_back(stack.frames);
  const std::vector<std::string> texts =
      launcher::readable_stacks(frames, base::Deadline::after(kLinePatience));
  for (std::size_t i = 0; i < stacks.size(); ++i)
    fmt::print("  thread {} ({})\n    {}\n", stacks[i].thread, stacks[i].name,
               stacks[i].frames.empty()
                   ? "not read: it did not stop, or there was no time left"
                   : fmt::format("{}", fmt::join(base::split(texts[i], '\n'), "\n    ")));
  return std::ranges::any_of(stacks, [](const ThreadStack& one) { return !one.frames.empty(); });
}

void show_stack(pid_t pid) {
  const std::vector<std::string> words = stack_program(pid);
  if (!words.empty() && run_program(words)) return;
  const std::string why = words.empty()
                              ? "no eu-stack, gdb or py-spy is here to show its stack"
                              : words.front() +
                                    " has not shown its stack (as another user than root, "
                                    "kernel.yama.ptrace_scope must be 0)";
  fmt::print("{}; its memory says, with some calls that have ended already:\n", why);
  if (show_scan(pid)) return;
  fmt::print("  nothing: it may not be read; the kernel says:\n");
  show_threads(pid);
}

void show_stacks(const Options& options) {
  const LocalJob job = chosen_job(options);
  for (const LocalRank& rank : chosen_ranks(job, options)) {
    fmt::print("== rank {} (pid {}) {}\n", rank.rank, rank.pid, describe(rank));
    std::fflush(stdout);
    if (rank.pid > 0) show_stack(rank.pid);
  }
}

int signal_of(const std::string& text) {
  const std::map<std::string, int> numbers = {
      {"HUP", SIGHUP},   {"INT", SIGINT},   {"QUIT", SIGQUIT}, {"KILL", SIGKILL},
      {"USR1", SIGUSR1}, {"USR2", SIGUSR2}, {"TERM", SIGTERM}, {"CONT", SIGCONT},
      {"STOP", SIGSTOP}, {"ABRT", SIGABRT}};
  const auto found = numbers.find(text.starts_with("SIG") ? text.substr(3) : text);
  if (found != numbers.end()) return found->second;
  std::string names;
  for (const auto& [name, number] : numbers) names += (names.empty() ? "" : " ") + name;
  throw Error(ErrorCode::kUsage, "there is no signal \"" + text + "\" for a job", "",
              "one of " + names);
}

/// To that very process: its number may be another one's by the time that a signal is sent.
void signal_process(pid_t pid, int number, const std::function<bool()>& is_still_meant) {
  const base::UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!process) throw base::system_error(fmt::format("signal process {}", pid), "dtrun ps");
  if (!is_still_meant())
    throw Error(ErrorCode::kNotFound, fmt::format("process {} has just ended", pid), "",
                "dtrun ps");
  if (::syscall(SYS_pidfd_send_signal, process.get(), number, nullptr, 0) != 0)
    throw base::system_error(fmt::format("signal process {}", pid), "dtrun ps");
}

void send_signal(const Options& options) {
  const int number = signal_of(options.signal);
  const LocalJob job = chosen_job(options);
  if (options.rank < 0) {
    signal_process(job.pid, number, [&] {
      return job.guard == job.pid || ProcessTable().is_below(job.guard, job.pid);
    });
    fmt::print("dtrun (pid {}) has {}\n", job.pid, base::signal_name(number));
    return;
  }
  const LocalRank rank = chosen_ranks(job, options).front();
  if (rank.pid <= 0)
    throw Error(ErrorCode::kNotFound,
                fmt::format("rank {} has no process: it {}", rank.rank, describe(rank)), "",
                "dtrun status " + std::to_string(job.pid));
  signal_process(rank.pid, number, [&] { return ProcessTable().is_below(rank.pid, job.guard); });
  fmt::print("rank {} (pid {}) has {}\n", rank.rank, rank.pid, base::signal_name(number));
}

int run(int argc, char** argv) {
  CLI::App app("dtrun-jobs shows the jobs of dtrun on this machine, and what their ranks do.");
  app.name("dtrun-jobs");
  app.set_version_flag("--version", "dtrun-jobs " DTRUN_VERSION);
  app.require_subcommand(1);
  Options options;
  CLI::App* const ps = app.add_subcommand("ps", "the jobs: a line each, and what their ranks do");
  CLI::App* const status = app.add_subcommand("status", "what each rank of a job does");
  CLI::App* const stacks =
      app.add_subcommand("stacks", "where each rank of a job is, by its stack");
  CLI::App* const attachment = app.add_subcommand(
      "attach", "what a job writes from now on, until it ends; Ctrl-C ends only this");
  CLI::App* const signal = app.add_subcommand("signal", "sends a signal to a job, or to one rank");
  for (CLI::App* const command : {status, stacks, attachment, signal})
    command
        ->add_option("JOB", options.job, "the pid of its dtrun, or 8 and more characters of its id")
        ->required(command == signal);
  for (CLI::App* const command : {stacks, signal})
    command->add_option("RANK,--rank", options.rank, "this rank alone")
        ->check(CLI::Range(0, kMostRanks))
        ->type_name("N");
  signal
      ->add_option("--signal", options.signal,
                   "TERM unless told; dtrun passes it on as it does when it gets it from elsewhere")
      ->type_name("NAME");
  for (CLI::App* const command : {ps, status})
    command->add_flag("--json", options.as_json, "for programs");
  status
      ->add_option("--record", options.record,
                   "writes the ranks' last operations there, for dtrun-explain; -: here")
      ->type_name("FILE")
      ->excludes("--json");
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& wanted) {
    return app.exit(wanted);
  } catch (const CLI::ParseError& error) {
    const auto chosen = app.get_subcommands();
    throw Error(ErrorCode::kUsage, error.what(), "",
                "dtrun " + (chosen.empty() ? "ps" : chosen.front()->get_name()) + " --help");
  }
  if (ps->parsed()) list_jobs(options);
  if (status->parsed()) show_status(options);
  if (stacks->parsed()) show_stacks(options);
  if (signal->parsed()) send_signal(options);
  if (attachment->parsed()) return attach(chosen_job(options));
  if (std::fflush(stdout) != 0) throw base::system_error("write to the standard output");
  return 0;
}

}  // namespace
}  // namespace dtrun::jobs

int main(int argc, char** argv) {
  ::signal(SIGPIPE, SIG_DFL);
  return dtrun::tools::tool_main("dtrun-jobs", dtrun::jobs::run, argc, argv);
}
