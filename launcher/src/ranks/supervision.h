// Supervision: the ranks of one round on this node, from their start until nothing of them is left.
// One table (supervision.cc): phase and event give actions and the next phase. Pure: it knows no
// process, clock or thread; WorkerGroup carries out the actions and reports the events.
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
  kAwaitingWord,  ///< a rank has died of a signal that was sent to all processes of the job: the
                  ///< agent's order about it is on its way
  kDeciding,      ///< a rank has failed: reap all that have ended by now before one is blamed
  kAwaitingRoot,  ///< all failed ranks accuse another: its own failure may still become known
  kYielding,      ///< the ranks have got a signal, and have time to end by themselves
  kStopping,      ///< the first signal is sent, the grace runs
  kKilling,       ///< SIGKILL is sent
  kSweeping,      ///< no rank is left; the processes that they left behind are being ended
  kFlushing,      ///< the ranks' output is being passed on
  kEnded,
};
inline constexpr int kPhases = static_cast<int>(Phase::kEnded) + 1;

enum class Event {
  kStart,
  kAllStarted,
  kStartFailed,
  kRankEndedWell,
  kRankEndedBadly,
  kRankEndedAsTold,  ///< badly, by a signal to all processes of the job, about which the agent's
                     ///< order is still to come; only while ranks run
  kRootFound,        ///< answers kLook: a rank that accuses nobody
  kOnlyVictims,      ///< answers kLook: all that have failed accuse others
  kMissingFound,     ///< answers kLook and kLookForMissing: a rank is gone while others wait for it
  kStop,             ///< signal, grace, SIGKILL
  kStopNow,
  kYield,       ///< pass a signal on, and give the ranks time to end
  kForward,     ///< pass a signal on, and no more
  kTimeUp,      ///< the phase's time (time_of) has passed
  kNobodyLeft,  ///< no rank is left; comes after each event while that is so
  kSwept,
  kFlushed,
};
inline constexpr int kEvents = static_cast<int>(Event::kFlushed) + 1;

enum class Action {
  kSpawn,  ///< answered by kAllStarted or kStartFailed
  kTellStartFailure,
  kLook,            ///< reap all that have ended by now, then find the rank to blame
  kLookForMissing,  ///< may be answered by kMissingFound, at once
  kBlameRoot,       ///< tell ranks and agent that the rank that was found ends the round
  kBlameAccused,    ///< blame the running rank that the victims accuse; else the first victim
  kPass,            ///< pass on the signal that came
  kFirstSignal,
  kKill,
  kSweep,  ///< answered by kSwept
  kCountUnkillable,
  kFlush,   ///< answered by kFlushed
  kReport,  ///< the last action of a round
};
inline constexpr int kActions = static_cast<int>(Action::kReport) + 1;

/// The time of a phase, from its beginning; kTimeUp comes when it has passed.
enum class Time {
  kNone,
  kWordPatience,    ///< to wait for the agent's order
  kVictimPatience,  ///< to wait for the failure of the rank that the victims accuse
  kYieldTime,       ///< that the sender of the signal has given the ranks
  kGrace,           ///< from the first signal to SIGKILL, by the cause of the stop
  kKillPatience,    ///< for processes that do not die of SIGKILL
};

inline constexpr int kMostActions = 3;

struct Row {
  Phase phase;
  Event event;
  Phase next;
  std::array<std::optional<Action>, kMostActions> actions;
};

/// The row for an event in a phase; nullptr: the event cannot happen there.
const Row* row_of(Phase phase, Event event);
std::span<const Row> table();
Time time_of(Phase phase);
/// For messages about bugs.
std::string_view name_of(Phase phase);

}  // namespace dtrun::launcher::supervision
