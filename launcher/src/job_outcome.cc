#include "job_outcome.h"

#include <cerrno>
#include <tuple>

#include "dtrun/base/exit_status.h"
#include "exit_code.h"

namespace dtrun::launcher {
namespace {

// Smaller: more of a cause.
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
  ranks.clear();
  spawn_failure.reset();
  missing_rank.reset();
  missing_cause.clear();
  own_failure.reset();
}

void JobOutcome::end_job_for(const rendezvous::rounds::JobFailure& failure) {
  if (failure != own_failure) failed_elsewhere = failure;
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

int exit_code_of(const JobOutcome& outcome) {
  if (outcome.stop_signal != 0) return kExitSignal + outcome.stop_signal;
  if (outcome.spawn_failure) return spawn_exit_code(outcome.spawn_failure->failure.error_number);
  if (outcome.guard_died) return kExitLauncherFailed;
  if (outcome.failed_elsewhere) return outcome.failed_elsewhere->exit_code();
  if (const RankOutcome* root = root_cause(outcome)) {
    const int own = base::ExitStatus{root->end.code, root->end.signal}.shell_code();
    return own != 0 ? own : 1;
  }
  const bool output_lost = outcome.group_end.lost_output_bytes > 0 &&
                           outcome.group_end.output_error != EPIPE &&
                           outcome.group_end.output_error != 0;
  return output_lost ? kExitSystem : 0;
}

}  // namespace dtrun::launcher
