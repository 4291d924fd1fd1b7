#include "ranks/supervision.h"

namespace dtrun::launcher::supervision {
namespace {

using A = Action;
using E = Event;
using P = Phase;

// The table is sorted by phase. In a row without actions nothing is done; a comment says why unless
// it is plain. An event without a row cannot happen in that phase.
constexpr Row kRows[] = {
    {P::kIdle, E::kStart, P::kStarting, {A::kSpawn}},

    // No rank is reaped while the ranks are being started, because starting them is one action.
    {P::kStarting, E::kAllStarted, P::kRunning, {}},
    {P::kStarting, E::kStartFailed, P::kKilling, {A::kTellStartFailure, A::kKill}},

    {P::kRunning, E::kRankEndedWell, P::kRunning, {A::kLookForMissing}},
    {P::kRunning, E::kRankEndedBadly, P::kDeciding, {A::kLook}},
    {P::kRunning, E::kRankEndedAsTold, P::kAwaitingWord, {}},
    {P::kRunning, E::kMissingFound, P::kStopping, {A::kBlameRoot, A::kFirstSignal}},
    {P::kRunning, E::kStop, P::kStopping, {A::kFirstSignal}},
    {P::kRunning, E::kStopNow, P::kKilling, {A::kKill}},
    {P::kRunning, E::kYield, P::kYielding, {A::kPass}},
    {P::kRunning, E::kForward, P::kRunning, {A::kPass}},
    {P::kRunning, E::kNobodyLeft, P::kSweeping, {A::kSweep}},

    // The order decides whether this is a failure at all.
    {P::kAwaitingWord, E::kRankEndedWell, P::kAwaitingWord, {}},
    {P::kAwaitingWord, E::kRankEndedBadly, P::kAwaitingWord, {}},
    {P::kAwaitingWord, E::kTimeUp, P::kDeciding, {A::kLook}},
    {P::kAwaitingWord, E::kStop, P::kStopping, {A::kFirstSignal}},
    {P::kAwaitingWord, E::kStopNow, P::kKilling, {A::kKill}},
    {P::kAwaitingWord, E::kYield, P::kYielding, {A::kPass}},
    {P::kAwaitingWord, E::kForward, P::kAwaitingWord, {A::kPass}},
    {P::kAwaitingWord, E::kNobodyLeft, P::kAwaitingWord, {}},

    // kLook sees ranks that end meanwhile, too.
    {P::kDeciding, E::kRankEndedWell, P::kDeciding, {}},
    {P::kDeciding, E::kRankEndedBadly, P::kDeciding, {}},
    {P::kDeciding, E::kRootFound, P::kStopping, {A::kBlameRoot, A::kFirstSignal}},
    {P::kDeciding, E::kMissingFound, P::kStopping, {A::kBlameRoot, A::kFirstSignal}},
    {P::kDeciding, E::kOnlyVictims, P::kAwaitingRoot, {A::kLookForMissing}},
    {P::kDeciding, E::kStop, P::kStopping, {A::kFirstSignal}},
    {P::kDeciding, E::kStopNow, P::kKilling, {A::kKill}},
    // A round that fails is not given time any more.
    {P::kDeciding, E::kYield, P::kDeciding, {A::kPass}},
    {P::kDeciding, E::kForward, P::kDeciding, {A::kPass}},
    {P::kDeciding, E::kNobodyLeft, P::kDeciding, {}},

    {P::kAwaitingRoot, E::kRankEndedWell, P::kAwaitingRoot, {A::kLookForMissing}},
    {P::kAwaitingRoot, E::kRankEndedBadly, P::kAwaitingRoot, {A::kLook}},
    {P::kAwaitingRoot, E::kRootFound, P::kStopping, {A::kBlameRoot, A::kFirstSignal}},
    {P::kAwaitingRoot, E::kMissingFound, P::kStopping, {A::kBlameRoot, A::kFirstSignal}},
    {P::kAwaitingRoot, E::kOnlyVictims, P::kAwaitingRoot, {A::kLookForMissing}},
    {P::kAwaitingRoot, E::kTimeUp, P::kStopping, {A::kBlameAccused, A::kFirstSignal}},
    {P::kAwaitingRoot, E::kStop, P::kStopping, {A::kFirstSignal}},
    {P::kAwaitingRoot, E::kStopNow, P::kKilling, {A::kKill}},
    {P::kAwaitingRoot, E::kYield, P::kAwaitingRoot, {A::kPass}},
    {P::kAwaitingRoot, E::kForward, P::kAwaitingRoot, {A::kPass}},
    // The accused rank may be on another node, and the message about it on its way.
    {P::kAwaitingRoot, E::kNobodyLeft, P::kAwaitingRoot, {}},

    // They end as they were asked to, with a code of their choice.
    {P::kYielding, E::kRankEndedWell, P::kYielding, {}},
    {P::kYielding, E::kRankEndedBadly, P::kYielding, {}},
    {P::kYielding, E::kTimeUp, P::kStopping, {A::kFirstSignal}},
    // The second request of an operator is final.
    {P::kYielding, E::kYield, P::kStopping, {A::kFirstSignal}},
    {P::kYielding, E::kStop, P::kStopping, {A::kFirstSignal}},
    {P::kYielding, E::kStopNow, P::kKilling, {A::kKill}},
    {P::kYielding, E::kForward, P::kYielding, {A::kPass}},
    {P::kYielding, E::kNobodyLeft, P::kSweeping, {A::kSweep}},

    {P::kStopping, E::kRankEndedWell, P::kStopping, {}},
    {P::kStopping, E::kRankEndedBadly, P::kStopping, {}},
    {P::kStopping, E::kTimeUp, P::kKilling, {A::kKill}},
    {P::kStopping, E::kStop, P::kStopping, {}},
    {P::kStopping, E::kStopNow, P::kKilling, {A::kKill}},
    {P::kStopping, E::kYield, P::kStopping, {}},
    {P::kStopping, E::kForward, P::kStopping, {A::kPass}},
    {P::kStopping, E::kNobodyLeft, P::kSweeping, {A::kSweep}},

    {P::kKilling, E::kRankEndedWell, P::kKilling, {}},
    {P::kKilling, E::kRankEndedBadly, P::kKilling, {}},
    {P::kKilling, E::kTimeUp, P::kFlushing, {A::kCountUnkillable, A::kFlush}},
    {P::kKilling, E::kStop, P::kKilling, {}},
    {P::kKilling, E::kStopNow, P::kKilling, {}},
    {P::kKilling, E::kYield, P::kKilling, {}},
    {P::kKilling, E::kForward, P::kKilling, {}},
    {P::kKilling, E::kNobodyLeft, P::kSweeping, {A::kSweep}},

    {P::kSweeping, E::kSwept, P::kFlushing, {A::kFlush}},
    {P::kSweeping, E::kStop, P::kSweeping, {}},
    // Processes that the ranks left behind get no grace any more, either.
    {P::kSweeping, E::kStopNow, P::kSweeping, {A::kKill}},
    {P::kSweeping, E::kYield, P::kSweeping, {}},
    {P::kSweeping, E::kForward, P::kSweeping, {}},
    {P::kSweeping, E::kNobodyLeft, P::kSweeping, {}},

    // A rank that survived SIGKILL may end after all: it is counted already.
    {P::kFlushing, E::kRankEndedWell, P::kFlushing, {}},
    {P::kFlushing, E::kRankEndedBadly, P::kFlushing, {}},
    {P::kFlushing, E::kFlushed, P::kEnded, {A::kReport}},
    {P::kFlushing, E::kStop, P::kFlushing, {}},
    {P::kFlushing, E::kStopNow, P::kFlushing, {}},
    {P::kFlushing, E::kYield, P::kFlushing, {}},
    {P::kFlushing, E::kForward, P::kFlushing, {}},
    {P::kFlushing, E::kNobodyLeft, P::kFlushing, {}},

    {P::kEnded, E::kRankEndedWell, P::kEnded, {}},
    {P::kEnded, E::kRankEndedBadly, P::kEnded, {}},
    {P::kEnded, E::kStop, P::kEnded, {}},
    {P::kEnded, E::kStopNow, P::kEnded, {}},
    {P::kEnded, E::kYield, P::kEnded, {}},
    {P::kEnded, E::kForward, P::kEnded, {}},
    {P::kEnded, E::kNobodyLeft, P::kEnded, {}},
};

}  // namespace

std::span<const Row> table() {
  return kRows;
}

const Row* row_of(Phase phase, Event event) {
  for (const Row& row : kRows)
    if (row.phase == phase && row.event == event) return &row;
  return nullptr;
}

Time time_of(Phase phase) {
  switch (phase) {
    case Phase::kAwaitingWord:
      return Time::kWordPatience;
    case Phase::kAwaitingRoot:
      return Time::kVictimPatience;
    case Phase::kYielding:
      return Time::kYieldTime;
    case Phase::kStopping:
      return Time::kGrace;
    case Phase::kKilling:
      return Time::kKillPatience;
    default:
      return Time::kNone;
  }
}

std::string_view name_of(Phase phase) {
  static constexpr std::string_view kNames[] = {
      "idle",     "starting", "running", "awaiting word", "deciding", "awaiting root",
      "yielding", "stopping", "killing", "sweeping",      "flushing", "ended"};
  static_assert(std::size(kNames) == kPhases);
  return kNames[static_cast<std::size_t>(phase)];
}

}  // namespace dtrun::launcher::supervision
