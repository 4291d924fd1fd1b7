#include "job_report.h"

#include <fmt/core.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "dtrun/base/error.h"
#include "dtrun/base/exit_status.h"
#include "dtrun/base/log.h"
#include "dtrun/base/socket.h"
#include "failure_table.h"

namespace dtrun::launcher {
namespace {

void read_error_files(const ErrorFolder& errors, JobOutcome& outcome) {
  for (RankOutcome& rank : outcome.ranks) {
    if (rank.end.success()) continue;
    const std::string path = errors.file_of(outcome.round, rank.end.local_rank);
    try {
      rank.report = rendezvous::read_failure_report(path);
    } catch (const base::Error& error) {
      base::log::warning(base::log::Component::kLauncher, "rank {}: {}",
                         outcome.base_rank + rank.end.local_rank, error.what());
    }
    if (rank.report && errors.kept()) rank.error_file = path;
  }
}

void copy_root_report(const LaunchPlan& plan, const JobOutcome& outcome) {
  const RankOutcome* const root = root_cause(outcome);
  if (root == nullptr || !root->report || plan.report_file.empty()) return;
  rendezvous::FailureReport report = *root->report;
  report.error_code = root->end.signal != 0 ? -root->end.signal : root->end.code;
  try {
    rendezvous::write_failure_report(plan.report_file, report);
  } catch (const base::Error& error) {
    print_error(error.what());
  }
}

void print_lost_output(const GroupEnd& end) {
  if (end.lost_output_bytes == 0 || end.output_error == EPIPE) return;
  print_error(
      fmt::format("cannot write to the standard output: {}; {} bytes of the ranks' output "
                  "are lost",
                  end.output_error != 0 ? strerrordesc_np(end.output_error) : "given up",
                  end.lost_output_bytes));
}

}  // namespace

void print_error(const std::string& text) {
  const std::string line = fmt::format("dtrun: error: {}\n", text);
  std::fflush(stdout);
  std::fwrite(line.data(), 1, line.size(), stderr);
  std::fflush(stderr);
}

void print_round_failure(const ErrorFolder& errors, JobOutcome& outcome) {
  read_error_files(errors, outcome);
  const RankOutcome* const root = root_cause(outcome);
  if (root == nullptr) return;
  const std::string why = root->report ? root->report->message : outcome.missing_cause;
  if (why.empty()) return;
  const std::string how = base::ExitStatus{root->end.code, root->end.signal}.describe();
  fmt::print(stderr, "dtrun: rank {} (local_rank: {}, pid: {}) failed in round {}: {}: {}\n",
             outcome.base_rank + root->end.local_rank, root->end.local_rank, root->end.pid,
             outcome.round, how, why);
}

int report_job(const LaunchPlan& plan, const ErrorFolder& errors, JobOutcome& outcome) {
  std::sort(outcome.ranks.begin(), outcome.ranks.end(),
            [](const auto& a, const auto& b) { return a.end.local_rank < b.end.local_rank; });
  read_error_files(errors, outcome);
  if (outcome.spawn_failure) print_error(outcome.spawn_failure->text);
  if (outcome.guard_died)
    print_error(
        fmt::format("the guard process has died ({}); everything that the job had started "
                    "was killed",
                    outcome.guard_end));
  if (outcome.stop_signal != 0) {
    print_error(fmt::format("stopped by {}", base::signal_name(outcome.stop_signal)));
  } else if (outcome.failed_elsewhere) {
    const bool begun = outcome.round != rendezvous::rounds::kNoRound;
    print_error(fmt::format("the job {}: {}", begun ? "was stopped" : "could not begin",
                            outcome.failed_elsewhere->describe()));
  } else if (!outcome.spawn_failure) {
    const std::string table = failure_table(plan, outcome, base::host_name());
    std::fwrite(table.data(), 1, table.size(), stderr);
    copy_root_report(plan, outcome);
  }
  if (outcome.group_end.unkillable > 0)
    print_error(fmt::format("{} processes of the job did not die of SIGKILL within 10 s",
                            outcome.group_end.unkillable));
  print_lost_output(outcome.group_end);
  const int code = exit_code_of(outcome);
  if (outcome.restarts > 0)
    fmt::print(stderr, "dtrun: the job has {} after {} of {} restarts\n",
               code == 0 ? "ended well" : "failed", outcome.restarts, outcome.max_restarts);
  std::fflush(stderr);
  return code;
}

}  // namespace dtrun::launcher
