// JobOutcome: all that the agent knows about a job at its end, and what follows from it: who is to
// blame, and the exit code. About ranks it has their last round. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "dtrun/rendezvous/failure_report.h"
#include "dtrun/rendezvous/round_messages.h"
#include "options/exit_policy.h"
#include "ranks/guard_link.h"
#include "ranks/timing.h"

namespace dtrun::launcher {

struct RankOutcome {
  RankEnd end;
  std::string error_tail = {};  ///< last lines of its standard error
  std::string error_file = {};  ///< where its error.json is; empty: it wrote none
  std::optional<rendezvous::FailureReport> report = {};
  std::string operations = {};  ///< its last ones, a line each
  std::string stack = {};  ///< where it crashed, a frame a line; empty: it did not, or is silent
  std::string core = {};   ///< where its core is, or why there is none
};

struct SpawnOutcome {
  SpawnFailure failure;
  std::string text;
};

struct JobOutcome {
  int max_restarts = 0;
  int restarts = 0;  ///< before the last round
  int round = rendezvous::rounds::kNoRound;
  int group_rank = rendezvous::rounds::kNoNodeRank;
  int base_rank = 0;
  int local_ranks = 0;
  /// The number that is shown for local rank 0: with --adopt it is the engine's.
  int first_local_rank = 0;
  std::vector<RankOutcome> ranks;
  std::optional<SpawnOutcome> spawn_failure;
  std::optional<RankEnd> missing_rank;  ///< exited while others needed it
  std::string missing_cause;
  /// This node's failure, as the others were told.
  std::optional<rendezvous::rounds::JobFailure> own_failure;
  /// The failure because of which the job has ended, if it is another node's.
  std::optional<rendezvous::rounds::JobFailure> failed_elsewhere;
  /// The ranks of other nodes that did not end well; known where this agent hosts the head.
  std::vector<rendezvous::rounds::WorkerEnd> ends_elsewhere;
  int stop_signal = 0;   ///< the signal by which the operator stopped the job
  int drain_signal = 0;  ///< the signal after which the ranks of this node have ended
  bool guard_died = false;
  std::string guard_end;  ///< how
  GroupEnd group_end;
  Timing timing;  ///< from round_opened to ranks_ended

  /// Forgets the ranks of the round before.
  void begin_round(const rendezvous::rounds::Start& start);
  bool is_own(int rank) const { return rank >= base_rank && rank < base_rank + local_ranks; }
  void end_job_for(const rendezvous::rounds::JobFailure& failure);
  /// Forgets the failures of earlier rounds: the job has ended well, maybe without this node in its
  /// last round.
  void forget_failures();
  /// Adds the end of any node's rank, unless it is known here already.
  void add(const rendezvous::rounds::WorkerEnd& end);
};

/// The report to the head about the rank that failed first here. It names this rank or the rank of
/// another node that it gave up, if that node has had time to report a failure and has not. @param
/// here this node; with the reason, where the end does not say it
rendezvous::rounds::JobFailure failure_of(const JobOutcome& outcome, const RankEnd& end,
                                          rendezvous::rounds::JobFailure here);

/// Says which program the failed rank ran, for a job of several.
void name_program(const std::string& program, rendezvous::rounds::JobFailure& failure);

/// The rank because of which the job failed; nullptr: it is not on this node. A victim of another's
/// failure only where there is no other; then deaths by signal before exit codes; then by the time
/// in error.json; then by the order in which they were seen.
const RankOutcome* root_cause(const JobOutcome& outcome);

/// The ranks of this node that did not end well, for the head; the first cause first.
std::vector<rendezvous::rounds::WorkerEnd> worker_ends(const JobOutcome& outcome,
                                                       const std::string& host);
std::int64_t time_of(const RankOutcome& rank);
/// Why the rank ended: its error.json (the call stack, as torchrun shows it, and the message,
/// unless the stack has it), or why it was missed, or its signal, or whose victim it is.
std::string reason_of(const JobOutcome& outcome, const RankOutcome& rank);

/// Of a rank that a signal has ended: moves the report of Python's faulthandler ("Fatal Python
/// error: ...") from the end of its standard error to its stack: its first line and the thread that
/// crashed.
void take_python_fault(RankOutcome& rank);

/// For the first cause; half as much for all others.
inline constexpr std::size_t kMostReasonBytes = 4 << 10;

/// The last bytes of a text, from the beginning of a line if there is one.
inline constexpr std::size_t kMostTailBytes = 4 << 10;
std::string end_of_text(const std::string& text, std::size_t most_bytes);

/// On this node or another one.
bool ended_by_operator(const JobOutcome& outcome);
/// An operator has ended the job, and all ranks of this node that did not end well have exited with
/// kExitTemporary.
bool ended_for_later(const JobOutcome& outcome);

int exit_code_of(const JobOutcome& outcome, const ExitPolicy& policy);

}  // namespace dtrun::launcher
