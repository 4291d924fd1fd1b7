// RoundHead: who takes part in which round. Pure: step() is given what happened and when, and
// returns what is to be done; it reads no clock, socket or thread, so that production, the
// simulator and the exhaustive search run the same code.
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
//   workers, or cannot have any: an agent whose connection ended is dead and its workers with it
//   (death_grace); one that fell silent ends its workers by itself within silence_window.
// - Survivors keep their group ranks as far as they exist; --node_rank goes before; the others fill
//   the gaps in natural order of their hosts.
// - A worker's failure costs a restart. The loss of a node costs one where the number of nodes is
//   fixed, and none where it is elastic; coming and leaving cost nothing.
// - After the first Done no new round opens. Closed is final.
// - Nobody is evicted for a time in which the head itself did not run.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "dtrun/rendezvous/round_messages.h"

namespace dtrun::rendezvous::rounds {

using MemberId = int;  ///< of one connection; rises, never reused

enum class LossKind {
  kGone,    ///< its end of the connection was closed: the agent is dead, or gone
  kSilent,  ///< it cannot be reached: it may live
};

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
/// Say it to the operator.
struct Note {
  enum class Weight { kDetail, kPlain, kWarning };
  Weight weight = Weight::kPlain;
  std::string text;
};
/// Nobody is left who needs the head.
struct End {};
using HeadAction = std::variant<Send, HangUp, Note, End>;

struct HeadMember {
  Hello hello;
  Moment heard{};
  int group_rank = kNoNodeRank;  ///< in the present round; kNoNodeRank: no participant
  bool stopped = true;           ///< it has said that it has no live workers
  bool done = false;
  bool leaving = false;
  std::optional<Moment> waiting_since;  ///< it came while a round was on

  bool participant() const { return group_rank != kNoNodeRank; }
};

enum class HeadPhase { kGathering, kPreparing, kRunning, kDraining, kClosed };

/// Of the rendezvous' own agent, where the head's end is the job's end.
enum class HeadLoss { kEndsTheJob, kMovesTheHead };

struct HeadState {
  RoundSettings settings;
  std::string run_id;
  HeadLoss head_loss = HeadLoss::kEndsTheJob;
  /// What all nodes were started with by one line contradicts: end the job rather than send the
  /// one away.
  bool contradiction_is_final = true;
  /// The member that is this very agent; none: not joined yet.
  std::optional<MemberId> own;

  HeadPhase phase = HeadPhase::kGathering;
  int round = kNoRound;  ///< the present one, or the last
  int restarts = 0;      ///< spent
  std::map<MemberId, HeadMember> members;
  Moment last_step{};
  std::optional<Moment> join_deadline;  ///< gathering, and too few are here
  std::optional<Moment> last_call;      ///< gathering, and enough are here
  Moment fence{};                       ///< before it nobody takes the place of the lost
  bool somebody_lost = false;           ///< of the last round's participants, since it ran
  bool somebody_done = false;           ///< in this round
  std::optional<JobFailure> failure;    ///< why the round is being drained; none: for newcomers
  Moment close_deadline{};
  Close verdict;  ///< of kClosed
};

/// @param own_hello of the agent that hosts; it joins like any other, by a Hello of its own
HeadState make_head(const RoundSettings& settings, std::string run_id, int first_round, Moment now);

std::vector<HeadAction> step(HeadState& state, const HeadEvent& event, Moment now);

/// When a Tick is due at the latest.
Moment head_deadline(const HeadState& state);

/// "2 of 3 nodes are here (h1, h2)"
std::string who_is_here(const HeadState& state);

}  // namespace dtrun::rendezvous::rounds
