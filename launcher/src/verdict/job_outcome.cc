#include "verdict/job_outcome.h"

#include <fmt/core.h>

#include <cerrno>
#include <tuple>

#include "dtrun/base/error.h"
#include "dtrun/base/exit_status.h"
#include "options/exit_code.h"
#include "output/output.h"

namespace dtrun::launcher {
namespace {

// The smaller the number, the more likely is the end a cause.
bool precedes(const RankOutcome& a, const RankOutcome& b) {
  const auto kind = [](const RankOutcome& rank) {
    return std::make_tuple(rank.end.stopped, rank.end.victim_of >= 0, rank.end.signal == 0);
  };
  if (kind(a) != kind(b)) return kind(a) < kind(b);
  if (a.report && b.report && a.report->timestamp != b.report->timestamp)
    return a.report->timestamp < b.report->timestamp;
  return a.end.order < b.end.order;
}

int spawn_exit_code(int error_number) {
  switch (error_number) {
    case ENOENT:
    case ENOTDIR:
      return kExitNotFound;
    case EACCES:
    case EPERM:
    case EISDIR:
    case ENOEXEC:
      return kExitNotExecutable;
    default:
      return kExitSystem;
  }
}

}  // namespace

void JobOutcome::begin_round(const rendezvous::rounds::Start& start) {
  restarts = start.restart_count;
  round = start.round;
  group_rank = start.group_rank;
  base_rank = start.base_rank;
  forget_failures();
}

void JobOutcome::forget_failures() {
  ranks.clear();
  spawn_failure.reset();
  missing_rank.reset();
  missing_cause.clear();
  ends_elsewhere.clear();
  own_failure.reset();
}

void JobOutcome::end_job_for(const rendezvous::rounds::JobFailure& failure) {
  const bool accuses_another = failure.rank >= 0 && !is_own(failure.rank);
  if (failure != own_failure || accuses_another) failed_elsewhere = failure;
}

void JobOutcome::add(const rendezvous::rounds::WorkerEnd& end) {
  if (end.round == round && !is_own(end.rank)) ends_elsewhere.push_back(end);
}

rendezvous::rounds::JobFailure failure_of(const JobOutcome& outcome, const RankEnd& end,
                                          rendezvous::rounds::JobFailure here) {
  here.rank = outcome.base_rank + end.local_rank;
  here.code = end.code;
  here.signal = end.signal;
  here.pid = end.pid;
  here.dumped = end.dumped;
  here.out_of_memory = end.oom;
  if (!here.text.empty() || end.victim_of < 0 || outcome.is_own(end.victim_of)) return here;
  here.text = fmt::format("rank {} did not answer: rank {} on node {} ({}) gave it up",
                          end.victim_of, here.rank, here.node_rank, here.host);
  here.rank = end.victim_of;
  here.node_rank = rendezvous::rounds::kNoNodeRank;
  here.host.clear();
  here.pid = 0;
  return here;
}

void name_program(const std::string& program, rendezvous::rounds::JobFailure& failure) {
  if (!failure.text.empty()) return;
  failure.text = fmt::format("rank {} on node {} ({}), which runs {}, failed: {}", failure.rank,
                             failure.node_rank, failure.host, program,
                             base::ExitStatus{failure.code, failure.signal}.describe());
}

const RankOutcome* root_cause(const JobOutcome& outcome) {
  const RankOutcome* root = nullptr;
  for (const RankOutcome& rank : outcome.ranks) {
    if (outcome.missing_rank) {
      if (rank.end.local_rank == outcome.missing_rank->local_rank) return &rank;
      continue;
    }
    if (rank.end.success()) continue;
    if (root == nullptr || precedes(rank, *root)) root = &rank;
  }
  return root;
}

namespace {

int shell_code(const RankEnd& end) {
  const int own = base::ExitStatus{end.code, end.signal}.shell_code();
  return own != 0 ? own : 1;  // one that was missed
}

// A rank that others gave up had to be stopped, so its own code means nothing: the code of the
// first rank that gave it up counts.
const RankEnd& end_that_counts(const JobOutcome& outcome, const RankOutcome& rank) {
  const bool given_up = outcome.missing_rank && rank.end.stopped != 0 &&
                        outcome.missing_rank->local_rank == rank.end.local_rank;
  return given_up ? *outcome.missing_rank : rank.end;
}

FailedRank failed_rank(const JobOutcome& outcome, const RankOutcome& rank) {
  const RankEnd& end = end_that_counts(outcome, rank);
  return {outcome.base_rank + end.local_rank, shell_code(end), end.oom != 0};
}

// Those that failed by themselves, as far as is known here, after the first cause.
std::vector<FailedRank> failed_by_themselves(const JobOutcome& outcome, const FailedRank& root) {
  std::vector<FailedRank> failed = {root};
  const auto add = [&](const FailedRank& one) {
    if (one.rank != root.rank) failed.push_back(one);
  };
  for (const RankOutcome& rank : outcome.ranks)
    if (!rank.end.success() && rank.end.stopped == 0) add(failed_rank(outcome, rank));
  for (const rendezvous::rounds::WorkerEnd& end : outcome.ends_elsewhere)
    if (end.stopped == 0)
      add({end.rank, base::ExitStatus{end.code, end.signal}.shell_code(), end.out_of_memory != 0});
  return failed;
}

}  // namespace

namespace {

// A crash's stack stands below.
std::string said_by(const rendezvous::FailureReport& report, const std::string& crash_stack) {
  const std::string& stack = report.call_stack;
  if (stack.empty() || stack == crash_stack) return report.message;
  if (stack.find(report.message) != std::string::npos) return stack;
  return stack + (stack.ends_with('\n') ? "" : "\n") + report.message;
}

// The end of a call stack says most, so the beginning is cut.
std::string bounded(std::string reason, std::size_t most_bytes) {
  if (reason.size() <= most_bytes) return reason;
  return "...\n" + end_of_text(reason, most_bytes);
}

}  // namespace

std::string reason_of(const JobOutcome& outcome, const RankOutcome& rank) {
  if (const std::string said = rank.report ? said_by(*rank.report, rank.stack) : ""; !said.empty())
    return said;
  if (outcome.missing_rank && outcome.missing_rank->local_rank == rank.end.local_rank)
    return outcome.missing_cause;
  if (rank.end.signal != 0)
    return fmt::format("Signal {} ({}) received by PID {}", rank.end.signal,
                       base::signal_name(rank.end.signal), rank.end.pid);
  if (rank.end.victim_of >= 0)
    return fmt::format("ended because rank {} had failed", rank.end.victim_of);
  return "no error.json was written; the last lines of its standard error follow, if any";
}

std::string end_of_text(const std::string& text, std::size_t most_bytes) {
  if (text.size() <= most_bytes) return text;
  const std::size_t begin = text.size() - most_bytes;
  const auto newline = text.find('\n', begin);
  const bool lines = newline != std::string::npos && newline + 1 < text.size();
  return text.substr(lines ? newline + 1 : begin);
}

void take_python_fault(RankOutcome& rank) {
  constexpr std::string_view kThread = "Current thread ";
  const auto begin = rank.error_tail.rfind(kPythonFault);
  if (rank.end.signal == 0 || begin == std::string::npos) return;
  const std::string report = rank.error_tail.substr(begin);
  rank.error_tail.resize(begin);
  rank.stack = report.substr(0, report.find('\n'));
  const auto thread = report.find(kThread);
  if (thread == std::string::npos) return;
  // An empty line ends the thread.
  rank.stack += "\n" + report.substr(thread, report.find("\n\n", thread) - thread);
  if (rank.stack.back() == '\n') rank.stack.pop_back();
}

std::vector<rendezvous::rounds::WorkerEnd> worker_ends(const JobOutcome& outcome,
                                                       const std::string& host) {
  std::vector<rendezvous::rounds::WorkerEnd> ends;
  const RankOutcome* const root = root_cause(outcome);
  const auto add = [&](const RankOutcome& rank) {
    rendezvous::rounds::WorkerEnd end;
    end.round = outcome.round;
    end.rank = outcome.base_rank + rank.end.local_rank;
    end.local_rank = outcome.first_local_rank + rank.end.local_rank;
    end.code = rank.end.code;
    end.signal = rank.end.signal;
    end.pid = rank.end.pid;
    end.stopped = rank.end.stopped;
    end.dumped = rank.end.dumped;
    end.out_of_memory = rank.end.oom;
    end.time = static_cast<std::uint64_t>(time_of(rank));
    end.host = host;
    end.error_file = rank.error_file;
    end.text =
        bounded(reason_of(outcome, rank), &rank == root ? kMostReasonBytes : kMostReasonBytes / 2);
    if (&rank == root && rank.end.stopped == 0)
      end.tail = end_of_text(rank.error_tail, kMostTailBytes);
    end.stack = rank.stack;
    end.core = rank.core;
    end.operations = rank.operations;
    ends.push_back(std::move(end));
  };
  if (root != nullptr) add(*root);
  int more = 0;
  for (const RankOutcome& rank : outcome.ranks) {
    if (&rank == root || rank.end.success()) continue;
    if (ends.size() < rendezvous::rounds::kMostWorkerEnds)
      add(rank);
    else
      ++more;
  }
  if (more > 0) ends.back().more = more;
  return ends;
}

std::int64_t time_of(const RankOutcome& rank) {
  return rank.report && rank.report->timestamp > 0 ? rank.report->timestamp : rank.end.time;
}

bool ended_by_operator(const JobOutcome& outcome) {
  const bool elsewhere = outcome.failed_elsewhere && outcome.failed_elsewhere->rank < 0 &&
                         outcome.failed_elsewhere->signal != 0;
  return outcome.stop_signal != 0 || outcome.drain_signal != 0 || elsewhere;
}

bool ended_for_later(const JobOutcome& outcome) {
  if (!ended_by_operator(outcome)) return false;
  bool somebody = false;
  for (const RankOutcome& rank : outcome.ranks) {
    if (rank.end.success()) continue;
    if (rank.end.signal != 0 || rank.end.code != kExitTemporary) return false;
    somebody = true;
  }
  return somebody;
}

int exit_code_of(const JobOutcome& outcome, const ExitPolicy& policy) {
  if (ended_for_later(outcome)) return kExitTemporary;
  if (outcome.stop_signal != 0) return kExitSignal + outcome.stop_signal;
  if (outcome.spawn_failure) return spawn_exit_code(outcome.spawn_failure->failure.error_number);
  if (outcome.guard_died) return kExitLauncherFailed;
  if (const auto& failure = outcome.failed_elsewhere) {
    if (failure->rank < 0) return failure->exit_code();
    return exit_code_by(policy, failed_by_themselves(outcome, {failure->rank, failure->exit_code(),
                                                               failure->out_of_memory != 0}));
  }
  if (const RankOutcome* root = root_cause(outcome))
    return exit_code_by(policy, failed_by_themselves(outcome, failed_rank(outcome, *root)));
  const bool output_lost = outcome.group_end.lost_output_bytes > 0 &&
                           outcome.group_end.output_error != EPIPE &&
                           outcome.group_end.output_error != 0;
  return output_lost ? kExitSystem : 0;
}

}  // namespace dtrun::launcher
