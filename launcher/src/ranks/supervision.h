// Supervision: what is done about the ranks of one round on this node, from their start until
// nothing of them is left. One table (supervision.cc): in which phase what can happen, what is done
// then, and which phase follows. Pure: it knows no process, clock or thread; WorkerGroup carries it
// out and tells it what happened.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string_view>

namespace dtrun::launcher::supervision {

enum class Phase {
  kIdle,
  kStarting,
  kRunning,
  kAwaitingWord,  ///< a rank has failed of a signal that was for all: the agent's order is on its
                  ///< way
  kDeciding,      ///< a rank has failed: who else has by now is seen before anybody is blamed
  kAwaitingRoot,  ///< only victims have failed: whom they accuse may still come to light
  kYielding,      ///< the ranks have been told by a signal, and have time to end by themselves
  kStopping,      ///< the first signal is sent, the grace runs
  kKilling,       ///< SIGKILL is sent
  kSweeping,      ///< no rank is left; what they left behind is being ended
  kFlushing,      ///< what they have written is being passed on
  kEnded,
};
inline constexpr int kPhases = static_cast<int>(Phase::kEnded) + 1;

enum class Event {
  kStart,
  kAllStarted,
  kStartFailed,
  kRankEndedWell,
  kRankEndedBadly,
  kRankEndedAsTold,  ///< badly, by a signal to all processes of the job of which the agent is yet
                     ///< to tell; only of running ranks
  kRootFound,        ///< answers kLook: a rank that accuses nobody
  kOnlyVictims,      ///< answers kLook: all that have failed accuse others
  kMissingFound,     ///< answers kLook and kLookForMissing: a rank is gone while others wait for it
  kStop,             ///< in steps
  kStopNow,
  kYield,       ///< pass a signal on, and give the ranks time
  kForward,     ///< pass a signal on, and no more
  kTimeUp,      ///< of the phase (time_of)
  kNobodyLeft,  ///< no rank is left; told after each event for as long as that is so
  kSwept,
  kFlushed,
};
inline constexpr int kEvents = static_cast<int>(Event::kFlushed) + 1;

enum class Action {
  kSpawn,  ///< answered by kAllStarted or kStartFailed
  kTellStartFailure,
  kLook,            ///< once all that have ended by now are reaped: who is to blame?
  kLookForMissing,  ///< may be answered by kMissingFound, at once
  kBlameRoot,       ///< tell ranks and agent for whom the round is ended: who was found
  kBlameAccused,    ///< whom the victims accuse and still runs; else the first of them
  kPass,            ///< the signal that came
  kFirstSignal,
  kKill,
  kSweep,  ///< answered by kSwept
  kCountUnkillable,
  kFlush,   ///< answered by kFlushed
  kReport,  ///< the last
};
inline constexpr int kActions = static_cast<int>(Action::kReport) + 1;

/// What runs from the moment a phase is entered; kTimeUp comes when it is over.
enum class Time {
  kNone,
  kWordPatience,    ///< for the agent's order
  kVictimPatience,  ///< for whom the victims accuse
  kYieldTime,       ///< as long as whoever sent the signal has given
  kGrace,           ///< of the cause for which the ranks are stopped
  kKillPatience,    ///< for processes that do not die of SIGKILL
};

inline constexpr int kMostActions = 3;

struct Row {
  Phase phase;
  Event event;
  Phase next;
  std::array<std::optional<Action>, kMostActions> actions;
};

/// What happens in the phase; nullptr: this cannot be there.
const Row* row_of(Phase phase, Event event);
std::span<const Row> table();
Time time_of(Phase phase);
/// For messages about bugs.
std::string_view name_of(Phase phase);

}  // namespace dtrun::launcher::supervision
