// RoundHead: who takes part in which round. Pure: step() gets an event and its time, and returns
// actions. It reads no clock, socket or thread, so production, the simulator and the exhaustive
// search run the same code.
//
//   gathering --enough are here--> preparing --store is open--> running --all done--> closed
//       ^                              |                           |
//       |                          one is lost        failure, loss, newcomers, leave
//       |                              v                           v
//       +------------------------------+<--nobody has workers--draining --no restart left--> closed
//
// The rules:
// - A round begins at once with max_nodes; with min_nodes after last_call_timeout, or at once when
//   nobody of the last round is missing. While a round runs, newcomers wait for one another for
//   last_call_timeout (or until max_nodes) before it is stopped for them.
// - A new round opens only when every participant of the old one has said that it has no live
//   workers, or cannot have any. An agent whose connection ended is dead, and its workers with it
//   (death_grace). An agent that fell silent, or whose connection was reset, ends its workers by
//   itself within silence_window; the head waits for that time, or until the agent comes back.
// - Survivors keep their group ranks as far as they exist. --node_rank goes before that. In the
//   first round the hosting agent is 0. The others fill the gaps in natural order of their hosts.
// - A worker's failure costs a restart, unless it is final (restart_policy.h). The loss of a node
//   costs one where the number of nodes is fixed, and none where it is elastic; coming and leaving
//   cost nothing.
// - After a Done in a running round no new round opens: a failure is final then. Closed is final.
// - Agents that are done say so to a head that takes over. If all of the round's nodes are done,
// the
//   job has succeeded. If one is not done, or does not come, the job has failed.
// - An agent that is done waits for the verdict, and looks for the head where it has lost it. A
//   closed head stays until those agents have come, or can come no more.
// - No agent is evicted for a time in which the head itself did not run.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "dtrun/rendezvous/absent_agents.h"
#include "dtrun/rendezvous/round_messages.h"

namespace dtrun::rendezvous::rounds {

using MemberId = std::int64_t;  ///< of one connection; rises, never reused

/// What happened.
struct Said {
  MemberId id = 0;
  AgentMessage message;  ///< the first one is a Hello
};
struct Lost {
  MemberId id = 0;
  LossKind kind = LossKind::kGone;
  std::string why;
};
struct Tick {};  ///< time has passed: head_deadline() said when
using HeadEvent = std::variant<Said, Lost, Tick>;

/// What is to be done, in order.
struct Send {
  MemberId id = 0;
  HeadMessage message;
};
/// End this connection once all is sent; no Lost follows.
struct HangUp {
  MemberId id = 0;
};
/// A text for the operator.
struct Note {
  enum class Weight { kDetail, kPlain, kWarning };
  Weight weight = Weight::kPlain;
  std::string text;
};
/// For the report of the job: how a worker of the present round, or the last, has ended.
struct Collect {
  WorkerEnd end;
};
/// No agent needs the head any more.
struct End {};
using HeadAction = std::variant<Send, HangUp, Note, Collect, End>;

struct HeadMember {
  Hello hello;  ///< its last_round and last_group_rank are kept up to date
  Moment heard{};
  int group_rank = kNoNodeRank;  ///< in the present round; kNoNodeRank: no participant
  bool stopped = true;           ///< it has no live workers, as it says
  bool done = false;  ///< in the present round, of which it may be no participant any more
  bool leaving = false;
  int base_rank = 0;
  std::size_t ends = 0;  ///< of its workers in this round, as it has told
  int restarts = 0;      ///< spent for its workers (RestartScope::kAgent)

  bool participant() const { return group_rank != kNoNodeRank; }
};

enum class HeadPhase { kGathering, kPreparing, kRunning, kDraining, kClosed };

/// What the end of the hosting agent means.
enum class HeadLoss {
  kEndsTheJob,
  kMovesTheHead,  ///< another one is elected
};
enum class Contradiction { kEndsTheJob, kIsSentAway };

/// Why a round is being drained. A later one in this list replaces an earlier one: a worker that
/// fails because another node is lost is a victim of that loss. But an event on a node after its
/// own worker has failed, and a leave after any failure, are consequences and replace nothing.
enum class DrainCause { kNewcomers, kWorkerFailure, kLeave, kLoss };

/// What the agents have said about the last round of the head before this one.
struct FormerRound {
  int round = kNoRound;
  int nodes = 0;
  std::set<int> done;  ///< group ranks
  std::string undone;  ///< one whose workers were ended; empty: none has come yet
};

struct HeadState {
  RoundSettings settings;
  std::string run_id;
  HeadLoss head_loss = HeadLoss::kEndsTheJob;
  /// The member that is this very agent; none: it has not joined.
  std::optional<MemberId> own;
  /// What an agent does that contradicts the common command line: by default it ends the job.
  Contradiction contradiction = Contradiction::kEndsTheJob;
  std::string how_to_join;  ///< for the message that too few have come: "  why: ...\n  try: ..."

  HeadPhase phase = HeadPhase::kGathering;
  int round = kNoRound;         ///< the present one, or the last
  int last_started = kNoRound;  ///< the last that came to run
  int latest_seen = kNoRound;   ///< the latest that a member knows, of the head before this one
  int restarts = 0;             ///< spent
  bool took_over = false;       ///< from a head that had begun a round; this one has begun none
  std::map<MemberId, HeadMember> members;
  std::map<std::uint64_t, MemberId> by_agent;
  /// The latest connection of each agent that is here, or took part in this round or the last.
  std::map<std::uint64_t, int> connections;
  std::map<int, MemberId> by_node_rank;  ///< of those that were given one
  int present = 0;                       ///< members that are not leaving
  int participants = 0;                  ///< of the present round, that are still here
  int busy = 0;                          ///< participants that may have live workers
  int done = 0;                          ///< participants that are done
  bool somebody_done = false;            ///< one was done in this round; it may be gone

  Moment running_since{};                   ///< of the round that was started last
  std::optional<JobFailure> quick_failure;  ///< for which that round ended within alike_window
  Moment gathering_since{};
  std::optional<Moment> join_deadline;    ///< gathering, and too few are here
  std::optional<Moment> last_call;        ///< gathering, and enough are here
  std::optional<Moment> newcomers_since;  ///< they wait, and there is room for them
  Moment fence{};                         ///< before it nobody takes the place of the lost
  /// As fence, but for single agents: it ends when they come back.
  AbsentAgents absent;
  FormerRound former;
  std::optional<Moment> done_deadline;  ///< gathering, and some were done under the last head
  /// RestartScope::kAgent: restarts spent for the workers of lost agents.
  std::map<std::uint64_t, int> spent_by_agent;
  std::set<std::uint64_t> lost_agents;  ///< of the last round, that may come back
  bool somebody_left = false;           ///< of the last round, and will not come back
  bool somebody_missing = false;        ///< of those who took part in the last round
  DrainCause drain_cause{};             ///< of kDraining
  JobFailure failure;                   ///< of kDraining, but for newcomers
  std::optional<MemberId> failed;       ///< whose workers the failure is of; it may be gone
  std::uint64_t failed_agent = 0;       ///< the same; 0: it has no identity
  Moment pause_until{};                 ///< no round opens before it (backoff)
  Close verdict;                        ///< of kClosed
  Moment close_deadline{};              ///< of kClosed
  std::optional<Moment> farewell;       ///< until then others may still come to be told
  /// Agents that know that the job is over, max_nodes at the most; 0 is no agent's number.
  std::set<std::uint64_t> told;
  /// Agents that were done in the last round and were lost without being dead, each with the time
  /// until which it may come back to hear the verdict.
  AbsentAgents owed;
  bool ended = false;
  bool resigned = false;  ///< another leads: agents that come now must look for it

  Moment last_step{};
  Moment next_sweep{};  ///< when the silent are looked for
};

HeadState make_head(const RoundSettings& settings, std::string run_id, Moment now);

/// This head follows another one, which is gone, and can be followed by others. Workers of the old
/// round may live until their agents have missed the old head, so no round opens for that time. The
/// agents know how many restarts are spent; with a fixed number of nodes the head's loss costs one.
/// @param last_round that the old head is known to have opened; kNoRound: none
void take_over(HeadState& state, int last_round, Moment now);

std::vector<HeadAction> step(HeadState& state, const HeadEvent& event, Moment now);

/// This agent is no longer the head: the others have to find the next one. Its state must not be
/// used any more.
std::vector<HeadAction> step_down(HeadState& state);

/// When a Tick is due at the latest; Moment::max(): never.
Moment head_deadline(const HeadState& state);

/// For the operator: the missing nodes, when too few are here; else "".
std::string waiting_text(const HeadState& state, Moment now);

/// The moment before which no node takes the place of a lost one.
Moment fence_of(const HeadState& state);

}  // namespace dtrun::rendezvous::rounds
