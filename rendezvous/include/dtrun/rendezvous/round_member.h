// RoundMember: one agent's part in the rounds. It joins, starts and stops its workers when the head
// says so, reports how they end, and decides what to do when the head is gone. Pure, as
// round_head.h.
//
//   joining --Accepted--> waiting --Start--> running --workers ended well--> done --Close--> ended
//      ^                    ^  |                |  |                                            ^
//      |                    |  +--Prepare: opens the store         Close, or the operator       |
//      |                    |                   v                       v                       |
//      |                    +--Stopped-- stopping                    ending --workers are gone--+
//      +------- the connection is lost, workers are gone, head_loss says rejoin
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "dtrun/base/error.h"
#include "dtrun/rendezvous/round_messages.h"

namespace dtrun::rendezvous::rounds {

/// What an agent does when the connection to the head is lost.
enum class AfterLoss {
  kEnd,       ///< the job is over for all: its workers end in peace
  kMakeRoom,  ///< the job may go on without it: ends before others take its place; where its
              ///< connection was reset, which says nothing of the head, as kRejoin
  kRejoin,    ///< ends its workers and joins again, here or wherever the next head is
};

struct MemberSettings {
  Hello hello;
  Moment join_timeout = std::chrono::seconds(600);
  /// How long nobody may listen at the head's place: the head may start later.
  Moment reach_timeout = Moment::max();
  Moment read_timeout = std::chrono::seconds(60);  ///< for the answer to Hello
  /// After a loss: how long nobody may answer at the endpoint before the head counts as gone.
  Moment rejoin_timeout = std::chrono::seconds(15);
  AfterLoss after_loss = AfterLoss::kEnd;
  std::string head_name;   ///< "n0:29500", for messages
  std::string why_not_me;  ///< why this agent does not host; may be empty
};

// --- events
struct Connected {};
/// The attempt that Connect asked for has failed; the next Connect makes another one.
struct Unreachable {
  std::string why;
};
struct Disconnected {
  std::string why;
  LossKind kind = LossKind::kGone;
};
struct Received {
  HeadMessage message;
};
struct StoreOpened {
  std::int32_t round = kNoRound;
  std::string address;  ///< as in StoreReady
  std::int32_t port = 0;
};
struct StoreFailed {
  std::int32_t round = kNoRound;
  std::string why;
};
/// The first failure among this node's workers; the rest of them is being ended.
struct WorkersFailed {
  std::int32_t round = kNoRound;
  JobFailure failure;
};
/// No process of that round is left.
struct WorkersGone {
  enum class How { kAllSucceeded, kOtherwise };
  std::int32_t round = kNoRound;
  How how = How::kOtherwise;
  std::vector<WorkerEnd> ends = {};  ///< of those that did not end well
};
/// Processes of that round survive SIGKILL: this node can be in no other round.
struct WorkersStuck {
  std::int32_t round = kNoRound;
  JobFailure failure;
};
struct OperatorStop {
  int signal = 15;
  int code = 0;  ///< with which its workers have ended, as they were asked to; 0: they are to end
  std::string why = {};  ///< for the others; empty: the signal says it
};
/// The head is at another address from now on (etcd's election).
struct HeadMoved {
  std::string head_name;
};
/// The head's verdict, as it has left it in etcd for agents that it cannot reach any more. An agent
/// that has the head hears the verdict from it; one that loses it, or lost it before, takes this.
struct VerdictLeft {
  Close verdict;
};
struct MemberTick {};
using MemberEvent = std::variant<Connected, Unreachable, Disconnected, Received, StoreOpened,
                                 StoreFailed, WorkersFailed, WorkersGone, WorkersStuck,
                                 OperatorStop, HeadMoved, VerdictLeft, MemberTick>;

// --- actions
/// Try to connect; answered by Connected or Unreachable. The driver spaces attempts out.
struct Connect {};
struct Say {
  AgentMessage message;
};
/// Closes the connection once all is sent; no Disconnected follows.
struct Disconnect {};
/// Open a fresh store; an earlier round's store here is closed. Answered by StoreOpened or
/// StoreFailed.
struct OpenStore {
  std::int32_t round = kNoRound;
};
struct StartWorkers {
  Start start;
};
enum class StopUrgency { kClean, kNow };
/// Answered by WorkersGone or WorkersStuck, unless that has come already.
struct StopWorkers {
  enum class Then { kEnd, kAnotherRound };
  std::int32_t round = kNoRound;
  StopUrgency urgency = StopUrgency::kClean;
  int signal = 15;
  JobFailure cause;
  Then then = Then::kEnd;
};
/// This agent's job is over; its last action. It has no live workers that can be ended.
struct Finish {
  enum class Kind {
    kSucceeded,
    kFailed,   ///< failure says why
    kStopped,  ///< by its operator
    kError,    ///< it never came to a round: error says why
  };
  Kind kind = Kind::kSucceeded;
  JobFailure failure;
  std::optional<base::Error> error;
};
struct MemberNote {
  std::string text;
};
using MemberAction = std::variant<Connect, Say, Disconnect, OpenStore, StartWorkers, StopWorkers,
                                  Finish, MemberNote>;

enum class MemberPhase {
  kJoining,
  kWaiting,
  kRunning,
  kStopping,   ///< its workers are being ended, then it goes on
  kRejoining,  ///< the same, and then it joins again
  kDone,
  kEnding,  ///< its workers are being ended, then it finishes
  kEnded,
};

struct MemberState {
  MemberSettings settings;
  MemberPhase phase = MemberPhase::kJoining;
  bool connected = false;
  bool accepted = false;  ///< by the present head
  bool taken = false;     ///< by any head
  int round = kNoRound;   ///< whose workers it has, or had last
  int group_rank = kNoNodeRank;
  int prepared = kNoRound;      ///< the round for which it was asked for a store
  bool workers = false;         ///< live ones may exist
  Moment since{};               ///< it has been joining
  std::string why_unreachable;  ///< of the last attempt to connect
  std::optional<Moment> join_deadline;
  std::optional<Moment> answer_deadline;
  std::optional<Moment> beat_at;
  Moment keep_alive_interval{};
  Moment silence_window{};
  Moment head_heard{};
  bool silence_told = false;  ///< to the operator; until the head is heard again
  int stop_signal = 0;        ///< the operator's
  Finish verdict;             ///< of kEnding
  std::optional<Close> left;  ///< VerdictLeft
};

/// The first actions: connects.
std::vector<MemberAction> begin(MemberState& state, Moment now);
std::vector<MemberAction> step(MemberState& state, const MemberEvent& event, Moment now);
/// For the operator: for whom this agent waits, before its first round or without a head; else "".
std::string waiting_text(const MemberState& state);
/// Whether others may begin a round when this agent falls silent. Then its workers must not outlive
/// the silence window.
bool others_may_go_on(const MemberState& state);
/// When a MemberTick is due at the latest; Moment::max(): never.
Moment member_deadline(const MemberState& state);

}  // namespace dtrun::rendezvous::rounds
