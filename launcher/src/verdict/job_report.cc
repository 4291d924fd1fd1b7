#include "verdict/job_report.h"

#include <fmt/core.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "dtrun/base/error.h"
#include "dtrun/base/exit_status.h"
#include "dtrun/base/log.h"
#include "dtrun/base/socket.h"
#include "dtrun/base/utf8.h"
#include "options/exit_code.h"
#include "output/notice.h"
#include "verdict/failure_object.h"
#include "verdict/failure_table.h"

namespace dtrun::launcher {
namespace {

void copy_root_report(const LaunchPlan& plan, const JobOutcome& outcome) {
  const RankOutcome* root = root_cause(outcome);
  if (root == nullptr || plan.report_file.empty()) return;
  // If the root was given up by others, their reports tell of it.
  if (!root->report && outcome.missing_rank)
    for (const RankOutcome& rank : outcome.ranks)
      if (rank.report && rank.end.stopped == 0) root = &rank;
  if (!root->report) return;
  rendezvous::FailureReport report = *root->report;
  report.error_code = root->end.signal != 0 ? -root->end.signal : root->end.code;
  try {
    rendezvous::write_failure_report(plan.report_file, report);
  } catch (const base::Error& error) {
    print_error(error.what());
  }
}

// A person at a terminal can read a table even among JSON objects.
void print_table(const LaunchPlan& plan, const JobOutcome& outcome) {
  if (notice_format() == LineFormat::kText || ::isatty(STDERR_FILENO) == 1)
    return print_as_it_is(failure_table(plan, outcome, base::host_name()));
  if (const auto failed = failed_ranks(outcome, base::host_name()))
    print_object(NoticeLevel::kError,
                 fmt::format("{} FAILED: rank {} first", plan.program_name(failed->root.local_rank),
                             failed->root.rank),
                 failure_object(plan, *failed));
  else
    print_text(NoticeLevel::kError, failure_table(plan, outcome, base::host_name()));
}

void print_lost_output(const GroupEnd& end) {
  // A rank that hangs reports nothing about itself.
  const bool unknown = end.lost_output_bytes == 0 && end.output_error == ETIMEDOUT;
  if ((end.lost_output_bytes == 0 && !unknown) || end.output_error == EPIPE) return;
  print_error(
      fmt::format("cannot write to the standard output: {}; {} of the ranks' output {}",
                  end.output_error != 0 ? strerrordesc_np(end.output_error) : "given up",
                  unknown ? "an unknown part" : fmt::format("{} bytes", end.lost_output_bytes),
                  unknown ? "may be lost" : "are lost"));
}

// With dtrun --hosts the notices of all hosts come to one terminal.
void print_lost_files(const LogFolder& folder, const GroupEnd& end, bool one_of_hosts) {
  if (end.file_error == 0) return;
  print_error(fmt::format(
      "cannot write the ranks' log files in {}{}: {}; {} of their output {} "
      "missing there",
      folder.path(), one_of_hosts ? " on " + base::host_name() : "",
      strerrordesc_np(end.file_error),
      end.lost_file_bytes > 0 ? fmt::format("{} bytes", end.lost_file_bytes) : "an unknown part",
      end.lost_file_bytes > 0 ? "are" : "may be"));
}

// With dtrun --hosts the node of the failed rank reports the failure, with its table. If that node
// is gone, node 0 does.
void print_failure_elsewhere(const LaunchPlan& plan, const JobOutcome& outcome) {
  const bool begun = outcome.round != rendezvous::rounds::kNoRound;
  const std::string text = fmt::format("the job {}: {}", begun ? "was stopped" : "could not begin",
                                       outcome.failed_elsewhere->describe());
  const bool told_there = outcome.failed_elsewhere->rank >= 0 || plan.options.node_rank != 0;
  if (begun && plan.options.one_of_hosts && told_there)
    return base::log::info(base::log::Component::kLauncher, "{}", text);
  print_error(text);
  if (!plan.options.one_of_hosts) print_table(plan, outcome);
}

const char* how_it_ended(const JobOutcome& outcome, int code) {
  if (code == 0) return "has ended well";
  return ended_by_operator(outcome) ? "was stopped" : "has failed";
}

}  // namespace

void print_round_failure(const LaunchPlan& plan, const JobOutcome& outcome) {
  const RankOutcome* const root = root_cause(outcome);
  if (root == nullptr) return;
  const std::string why = root->report ? root->report->message : outcome.missing_cause;
  if (why.empty()) return;
  const std::string how =
      root->end.stopped != 0 ? ""
                             : base::ExitStatus{root->end.code, root->end.signal}.describe() + ": ";
  print_line(
      NoticeLevel::kError,
      fmt::format(
          "rank {} (local_rank: {}, pid: {}{}) failed in round {}: {}{}",
          outcome.base_rank + root->end.local_rank, outcome.first_local_rank + root->end.local_rank,
          root->end.pid,
          plan.programs.size() == 1 ? "" : ", program: " + plan.program_name(root->end.local_rank),
          outcome.round, how, why));
}

void tell_job_end(const LaunchPlan& plan, const JobOutcome& outcome, GuardLink& link) {
  const int code = exit_code_of(outcome, plan.options.stop.exit);
  link.send(MessageKind::kJobEnd,
            JobEnd{plan.options.ends_as_torchrun && code != 0 ? kExitTorch : code});
}

int report_job(const LaunchPlan& plan, const LogFolder& errors, JobOutcome& outcome) {
  std::sort(outcome.ranks.begin(), outcome.ranks.end(),
            [](const auto& a, const auto& b) { return a.end.local_rank < b.end.local_rank; });
  if (outcome.spawn_failure) print_error(outcome.spawn_failure->text);
  if (outcome.guard_died)
    print_error(
        fmt::format("the guard process has died ({}); everything that the job had started "
                    "was killed",
                    outcome.guard_end));
  const int own_signal = outcome.stop_signal != 0 ? outcome.stop_signal : outcome.drain_signal;
  if (own_signal != 0 && ended_for_later(outcome)) {
    print_line(NoticeLevel::kInfo,
               fmt::format("{} by {}: all ranks of this node that did not end well exited with "
                           "{}: the job can go on later",
                           outcome.stop_signal != 0 ? "stopped" : "drained",
                           base::signal_name(own_signal), kExitTemporary));
  } else if (outcome.stop_signal == SIGPIPE) {  // it was told when it happened
  } else if (outcome.stop_signal != 0) {
    // With several hosts the starter prints it.
    if (!plan.options.one_of_hosts)
      print_error(fmt::format("stopped by {}", base::signal_name(outcome.stop_signal)));
  } else if (outcome.failed_elsewhere) {
    print_failure_elsewhere(plan, outcome);
  } else if (!outcome.spawn_failure) {
    print_table(plan, outcome);
    copy_root_report(plan, outcome);
  }
  if (outcome.group_end.unkillable > 0)
    print_error(fmt::format("{} processes of the job did not die of SIGKILL within 10 s",
                            outcome.group_end.unkillable));
  print_lost_output(outcome.group_end);
  print_lost_files(errors, outcome.group_end, plan.options.one_of_hosts);
  const int code = exit_code_of(outcome, plan.options.stop.exit);
  if (outcome.restarts > 0)
    print_line(NoticeLevel::kInfo,
               fmt::format("the job {} after {} of {} restarts", how_it_ended(outcome, code),
                           outcome.restarts, outcome.max_restarts));
  return code;
}

}  // namespace dtrun::launcher
