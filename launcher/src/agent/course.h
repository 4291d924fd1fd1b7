// Course: the course of the job on this node, from the search for the head to the end of this
// agent. One table (course.cc): phase, event and what is known by then give actions and the next
// phase. Pure: it knows no process, socket, clock or text; Agent carries out the actions and
// reports the events.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string_view>

namespace dtrun::launcher::course {

enum class Phase {
  kWaiting,     ///< no ranks: a round begins, or the job ends
  kRunning,     ///< the guard has the ranks of a round
  kCollecting,  ///< no rank is left, and not all have ended well: their error files are being read
  kPreparing,   ///< another round is expected: the commands before it run
  kFlushing,    ///< the job is over here, and the guard still writes its output
  kLeaving,     ///< the same, and other agents may need what this one hosts
  kOver,        ///< nothing happens any more
};
inline constexpr int kPhases = static_cast<int>(Phase::kOver) + 1;

enum class Event {
  // of the seat
  kStart,
  kStopRound,  ///< the ranks must end, and another round follows
  kStopJob,    ///< the ranks must end, and no other round follows
  // The same without hurry, and not because of a failure:
  kStopRoundInPeace,
  kStopJobInPeace,
  kSucceeded,  ///< the job; no round follows
  kFinished,   ///< it is over otherwise; no round follows
  kFree,       ///< nobody needs any more what is hosted here
  // of the operator
  kStopWish,
  kDrainWish,  ///< the ranks are to end by themselves
  kForward,    ///< a signal is for the ranks, and no more
  // of the guard
  kFailure,    ///< the first one, or a lease that has run out; the rest of the ranks is being ended
  kEndedWell,  ///< all ranks, or
  kEndedBadly,  ///< not all ranks
  kFlushed,
  kReaderGone,  ///< nobody reads the output any more
  kGuardGone,
  kGuardGoneStuck,  ///< the same, and processes of the job survive SIGKILL
  // of what the agent itself has begun
  kCollected,
  kPrepared,
  kUnfit,  ///< a command has shown that this node must not take part any more
};
inline constexpr int kEvents = static_cast<int>(Event::kUnfit) + 1;

enum class Action {
  kTellLastFailure,  ///< to the operator: that of the round before
  kBegin,            ///< start the ranks
  kStopRanks,
  kPass,         ///< the signal that came
  kDrain,        ///< pass the signal on, and give the ranks time
  kCollect,      ///< answered by kCollected
  kPrepare,      ///< answered by kPrepared or kUnfit
  kEndCommands,  ///< those that kPrepare has begun; no answer follows
  kBeginStop,
  kBeginLateStop,  ///< one that can change nothing: it does not count as the operator's stop
  // to the seat; the last five say that no rank of the round is left here
  kTellStop,
  kTellReaderGone,
  kTellFailure,
  kTellDrained,  ///< a stop with the ranks' own exit code
  kTellAllWell,
  kTellGone,
  kTellEnds,   ///< the same, with the ranks that have not ended well
  kTellStuck,  ///< some survive SIGKILL
  kTellUnfit,
  // to the guard
  kTellMoreFollows,  ///< another round does
  kFlush,            ///< answered by kFlushed
  kDismissGuard,
  // the end
  kLeave,  ///< answered by kFree, maybe at once
  kQuit,
};
inline constexpr int kActions = static_cast<int>(Action::kQuit) + 1;

/// What follows the round.
enum class Prospect { kOpen, kAnotherRound, kEndOfJob };
enum class Stop { kNone, kWished, kLate };

/// What is known by now.
struct Facts {
  // Told by the agent before the event that it comes with. From the beginning:
  bool only_round = false;  ///< of the job: the first loss ends it
  // With kStart:
  bool restarts_left = false;
  // With kEndedWell and kEndedBadly:
  bool stuck = false;         ///< processes of the round survive SIGKILL
  bool yielded = false;       ///< the ranks have ended by themselves after the signal of a drain
  bool output_waits = false;  ///< not all is written

  // Kept by step():
  Prospect prospect = Prospect::kOpen;
  bool failed_here = false;  ///< the round, or the last one
  bool drain = false;        ///< has been wished, and begun
  Stop stop = Stop::kNone;
  bool guard_gone = false;
};

/// Of the rows for a phase and an event the first one counts whose condition holds.
enum class When {
  kAlways,
  kGuardIsGone,
  kIsStuck,
  kHasFailed,
  kIsOnlyRound,
  kOutputWaits,
  kDrainBegan,
  kMayDrain,
  kEndsByItself,       ///< a drain is under way, and no stop
  kHasDrained,         ///< the same, and nothing has failed here
  kDrainedForAnother,  ///< the same, and another round follows
  kMayGoOn,            ///< another round is expected, and this node will be in it
  kEndIsSure,
  kFirstStop,
  kFirstStopIsLate,
};

inline constexpr int kMostActions = 4;

struct Row {
  Phase phase;
  Event event;
  When when;
  Phase next;
  std::array<std::optional<Action>, kMostActions> actions;
};

struct State {
  Phase phase = Phase::kWaiting;
  Facts facts;
};

std::span<const Row> table();
/// The row for an event; nullptr: the event cannot happen there.
const Row* row_of(const State& state, Event event);
/// Takes the state on. Returns the row, whose actions are to be carried out in their order.
const Row* step(State& state, Event event);
/// For messages about bugs.
std::string_view name_of(Phase phase);

}  // namespace dtrun::launcher::course
